module github.com/ral-limiter/ral/examples

go 1.25.0

require (
	connectrpc.com/connect v1.21.0
	github.com/prometheus/client_golang v1.23.2
	github.com/ral-limiter/ral v0.0.0
	github.com/ral-limiter/ral/cmd/ralbench v0.0.0
	github.com/ral-limiter/ral/fleet v0.0.0
	github.com/ral-limiter/ral/observe/ralprom v0.0.0
	github.com/ral-limiter/ral/rpc v0.0.0
	github.com/redis/rueidis v1.0.79
	github.com/stretchr/testify v1.12.1
	google.golang.org/grpc v1.84.0
	google.golang.org/protobuf v1.36.12
)

require (
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/chromedp/cdproto v0.159.0 // indirect
	github.com/chromedp/chromedp v0.23.0 // indirect
	github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect
	github.com/google/btree v1.1.3 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/prometheus/client_model v0.6.3 // indirect
	github.com/prometheus/common v0.67.5 // indirect
	github.com/prometheus/procfs v0.20.1 // indirect
	github.com/puzpuzpuz/xsync/v3 v3.5.1 // indirect
	go.yaml.in/yaml/v2 v2.4.4 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/net v0.57.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/text v0.41.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260706201446-f0a921348800 // indirect
)

replace (
	github.com/ral-limiter/ral => ..
	github.com/ral-limiter/ral/cmd/ralbench => ../cmd/ralbench
	github.com/ral-limiter/ral/fleet => ../fleet
	github.com/ral-limiter/ral/observe/ralprom => ../observe/ralprom
	github.com/ral-limiter/ral/rpc => ../rpc
)
