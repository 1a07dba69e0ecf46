string.match(tostring(redis.pcall('INFO', 'server')), 'run_id:(%x+)') or ''
