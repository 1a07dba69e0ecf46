module github.com/ral-limiter/ral/fleet

go 1.25.0

replace github.com/ral-limiter/ral => ..

require (
	github.com/redis/rueidis v1.0.79
	github.com/stretchr/testify v1.12.1
)

require (
	github.com/google/btree v1.1.3 // indirect
	go.uber.org/goleak v1.3.0
)

require github.com/puzpuzpuz/xsync/v3 v3.5.1 // indirect

require (
	github.com/ral-limiter/ral v0.0.0
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sys v0.47.0 // indirect
)
