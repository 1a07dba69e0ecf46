-- A funnel's units and reach, of n units.
local ah, al = n * ih, n * il
ah, al = ah + (al - al % 1e9) / 1e9, al % 1e9
local rh, rl = dh - ah, dl - al
