# Every module of the repository: what is more than the core needs has one of its own.
MODULES := . cmd/ralbench docs/charts examples/fleet examples/webserver fleet httplimit/sidebyside internal/browsertest tools/mutation torture

GO       ?= go
FUZZTIME ?= 1m
# How long make torture takes, in seconds.
FOR      ?= 3600

# The packages whose tests are run on other platforms and numbers of processors, too.
CORE := ./policy ./cmdqueue ./supervisor ./table ./janitor ./cell ./engine ./httplimit

.PHONY: test needs lint bench fuzz torture mutation

# All tests of all modules: vetted and built for other platforms, as they are,
# under the race detector (but for pages, which run in a browser's processes), with other
# numbers of processors, and on 32 bits.
test: needs
	@set -e; for m in $(MODULES); do \
		echo "== $$m: formatting, vet, platforms"; \
		test -z "$$(cd $$m && gofmt -l .)" || { echo "run gofmt -w on:"; (cd $$m && gofmt -l .); exit 1; }; \
		(cd $$m && $(GO) vet ./...); \
		(cd $$m && GOARCH=386 $(GO) vet ./... && GOARCH=arm64 $(GO) vet ./...); \
		echo "== $$m: tests"; \
		(cd $$m && $(GO) test -count=1 ./...); \
		echo "== $$m: tests with the race detector"; \
		(cd $$m && $(GO) test -count=1 -race -skip InABrowser ./...); \
	done
	@echo "== .: the race detector on 1 to 16 processors"
	@$(GO) test -count=1 -race -cpu 1,2,4,16 ./cmdqueue ./supervisor ./janitor ./cell
	@# TestSchedules tries the same schedules on any number of processors of any width,
	@# and policies are pure functions.
	@echo "== .: 1 processor"
	@$(GO) test -count=1 -cpu 1 -skip TestSchedules $(filter-out ./policy,$(CORE))
	@if [ "$$($(GO) env GOHOSTARCH)" = amd64 ]; then export GOARCH=386; fi; \
		echo "== .: 4 processors, $$($(GO) env GOARCH)"; \
		$(GO) test -count=1 -cpu 4 -skip TestSchedules $(CORE)
	@echo "== .: wasm"
	@GOOS=js GOARCH=wasm $(GO) build $(CORE)
	@GOOS=wasip1 GOARCH=wasm $(GO) build $(CORE)

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

# The long parts of docs/torture.md, one after the other: FOR seconds in all, after the
# core's tests under the race detector on few and many processors.
torture:
	$(GO) test -race -count=1 -cpu 1,2,4,16 -timeout 0 $(CORE)
	cd torture && $(GO) test ./simulation -run TestLong -for $$(($(FOR)/5))s -timeout 0 -v
	cd torture && $(GO) test ./linear -run TestLinearizable -for $$(($(FOR)/5))s -timeout 0 -v
	cd torture && $(GO) test ./soak -run TestSoak -for $$(($(FOR)/5))s -timeout 0 -v
	cd torture && $(GO) test ./hostile -run TestCost -for $$(($(FOR)/5))s -timeout 0 -v
	cd torture && $(GO) test ./properties -for $$(($(FOR)/5))s -timeout 0 -v

# Takes each safety mechanism out in turn and sees that a test fails: docs/mutations.md.
mutation:
	$(GO) run ./tools/mutation

# Every fuzz target in turn, FUZZTIME each.
fuzz:
	@set -e; for p in $$($(GO) list ./...); do \
		for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz' || true); do \
			echo "== $$p $$f"; $(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) $$p; \
		done; \
	done
