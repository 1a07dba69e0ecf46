module github.com/ral-limiter/ral/httplimit/sidebyside

go 1.25.0

replace github.com/ral-limiter/ral => ../..

require (
	github.com/dunglas/httpsfv v1.1.2
	github.com/go-chi/httprate v0.16.1
	github.com/ral-limiter/ral v0.0.0
	github.com/stretchr/testify v1.12.1
	golang.org/x/time v0.15.0
)

require (
	github.com/google/btree v1.1.3 // indirect
	github.com/klauspost/cpuid/v2 v2.2.10 // indirect
	github.com/puzpuzpuz/xsync/v3 v3.5.1 // indirect
	github.com/zeebo/xxh3 v1.0.2 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sys v0.30.0 // indirect
)
