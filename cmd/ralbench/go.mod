module github.com/ral-limiter/ral/cmd/ralbench

go 1.25.0

replace github.com/ral-limiter/ral => ../..

require (
	github.com/HdrHistogram/hdrhistogram-go v1.4.0
	github.com/jedib0t/go-pretty/v6 v6.8.3
	github.com/ral-limiter/ral v0.0.0
	github.com/schollz/progressbar/v3 v3.19.1
	github.com/stretchr/testify v1.12.1
	golang.org/x/term v0.44.0
)

require (
	github.com/google/btree v1.1.3 // indirect
	github.com/mattn/go-runewidth v0.0.16 // indirect
	github.com/mitchellh/colorstring v0.0.0-20190213212951-d06e56a500db // indirect
	github.com/puzpuzpuz/xsync/v3 v3.5.1 // indirect
	github.com/rivo/uniseg v0.4.7 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sys v0.46.0 // indirect
	golang.org/x/text v0.22.0 // indirect
)
