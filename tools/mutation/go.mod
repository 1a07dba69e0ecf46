module github.com/ral-limiter/ral/tools/mutation

go 1.25.0
