# Every module of the repository: what is more than the core needs has one of its own.
MODULES := . cmd/ralbench docs/charts examples/webserver httplimit/sidebyside

GO       ?= go
FUZZTIME ?= 1m

.PHONY: test needs lint bench fuzz

# All tests of all modules: vetted and built for other platforms, as they are,
# under the race detector, with other numbers of processors, and on 32 bits.
test: needs
	@set -e; for m in $(MODULES); do \
		echo "== $$m: formatting, vet, platforms"; \
		test -z "$$(cd $$m && gofmt -l .)" || { echo "run gofmt -w on:"; (cd $$m && gofmt -l .); exit 1; }; \
		(cd $$m && $(GO) vet ./...); \
		(cd $$m && GOARCH=386 $(GO) vet ./... && GOARCH=arm64 $(GO) vet ./...); \
		echo "== $$m: tests"; \
		(cd $$m && $(GO) test -count=1 ./...); \
		echo "== $$m: tests with the race detector"; \
		(cd $$m && $(GO) test -count=1 -race ./...); \
	done
	@echo "== .: 1 and 4 processors"
	@$(GO) test -count=1 -cpu 1,4 ./policy ./cmdqueue ./supervisor ./table ./janitor ./cell ./engine ./httplimit
	@if [ "$$($(GO) env GOHOSTARCH)" = amd64 ]; then \
		echo "== .: 32 bits"; \
		GOARCH=386 $(GO) test -count=1 ./policy ./cmdqueue ./supervisor ./table ./janitor ./cell ./engine ./httplimit; \
	fi

# A browser for ralbench's page and a Redis for its peers; installed if they are
# missing and that can be done.
needs:
	@./tools/need-chromium
	@./tools/need-redis

# The linters of .golangci.yml, by the golangci-lint that is installed, or else
# by one that the go command fetches and builds.
lint:
	@set -e; for m in $(MODULES); do \
		echo "== $$m"; \
		if command -v golangci-lint >/dev/null; then (cd $$m && golangci-lint run ./...); \
		else (cd $$m && $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0 run ./...); fi; \
	done

# Go benchmarks of the parts, in the form that benchstat compares. For the whole
# side by side with its floor and its other mode: go run ./cmd/ralbench
bench:
	$(GO) test -run '^$$' -bench . -benchmem -count 6 ./...

# Every fuzz target in turn, FUZZTIME each.
fuzz:
	@set -e; for p in $$($(GO) list ./...); do \
		for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz' || true); do \
			echo "== $$p $$f"; $(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) $$p; \
		done; \
	done
