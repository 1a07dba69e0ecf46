module github.com/ral-limiter/ral/examples/webserver

go 1.25.0

replace github.com/ral-limiter/ral => ../..

replace github.com/ral-limiter/ral/fleet => ../../fleet

replace github.com/ral-limiter/ral/metrics/ralprom => ../../metrics/ralprom

require (
	github.com/prometheus/client_golang v1.23.2
	github.com/ral-limiter/ral v0.0.0
	github.com/ral-limiter/ral/fleet v0.0.0
	github.com/ral-limiter/ral/metrics/ralprom v0.0.0
	github.com/redis/rueidis v1.0.79
	github.com/stretchr/testify v1.12.1
)

require (
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/google/btree v1.1.3 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/prometheus/client_model v0.6.3 // indirect
	github.com/prometheus/common v0.66.1 // indirect
	github.com/prometheus/procfs v0.16.1 // indirect
	github.com/puzpuzpuz/xsync/v3 v3.5.1 // indirect
	go.yaml.in/yaml/v2 v2.4.2 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sys v0.47.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)
