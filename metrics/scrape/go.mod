module github.com/ral-limiter/ral/metrics/scrape

go 1.25.0

replace github.com/ral-limiter/ral => ../..

require (
	github.com/ral-limiter/ral v0.0.0
	github.com/stretchr/testify v1.12.1
	go.yaml.in/yaml/v3 v3.0.5
)

require (
	github.com/google/btree v1.1.3 // indirect
	github.com/puzpuzpuz/xsync/v3 v3.5.1 // indirect
)
