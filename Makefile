# Every module of the repository: what is more than the core needs has one of its own.
# The tests of the first ones mostly wait, for Redis and for browsers, and run beside
# those of the others.
WAITING := cmd/ral cmd/ralbench cmd/rald examples/fleet examples/webserver fleet fleet/faults internal/browsertest metrics/scrape
OTHERS  := . cmd/rald/oracle connectlimit docs/charts examples/grpc grpclimit grpclimit/sidebyside httplimit/sidebyside metrics/ralotel metrics/ralprom rpclimit/rpcstatus tools/mutation torture
MODULES := $(OTHERS) $(WAITING)
packages = $(foreach m,$(1),./$(m)/...)

GO       ?= go
FUZZTIME ?= 1m
# How long make torture takes, in seconds.
FOR      ?= 3600

# Packages whose code runs on many goroutines at once, or decides what they are told.
CONCURRENT := ./cmdqueue ./supervisor ./table ./janitor ./cell ./engine ./single ./httplimit
# Packages whose tests are run on other platforms and numbers of processors, too.
CORE := ./policy $(CONCURRENT)

# The linters, and what compares benchmarks with make benchstat.
LINTER ?= $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
BASE ?= origin/main

.PHONY: test check needs tidy vet lint platforms race processors bench benchstat fuzz torture mutation release test-waiting test-others

# What to run before each commit: the tests of all modules. -short tries fewer schedules
# of the table; make check tries the others, and runs all tests under the race detector.
test: needs vet
	@$(MAKE) --no-print-directory -j2 test-waiting test-others FLAGS=-short

test-waiting:
	@echo "== tests $(FLAGS): $(WAITING)"
	@$(GO) test -count=1 $(FLAGS) $(call packages,$(WAITING))

test-others:
	@echo "== tests $(FLAGS): $(OTHERS)"
	@$(GO) test -count=1 $(FLAGS) $(call packages,$(OTHERS))

vet:
	@echo "== formatting and vet"
	@test -z "$$(gofmt -l .)" || { echo "run gofmt -w on:"; gofmt -l .; exit 1; }
	@$(GO) vet $(call packages,$(MODULES))

# What to run before a pull request, besides make test. The simulation has the same seeds
# each time, so that no change is refused for what another one left; make torture has others.
check: needs tidy lint platforms race processors
	@echo "== table: every schedule"
	@$(GO) test -count=1 -run TestSchedules ./table
	@echo "== metrics: ten million keys"
	@$(GO) test -count=1 -run TestSeriesStayConstant ./metrics/ralprom
	@echo "== torture, longer"
	@cd torture && $(GO) test -count=1 ./simulation -run TestSeeds -first 100001 -seeds 200000
	@cd torture && $(GO) test -count=1 ./linear -run TestLinearizable -for 20s
	@cd torture && $(GO) test -count=1 ./properties -for 20s
	@echo "== fleet: busy servers, 8 times"
	@cd fleet && $(GO) test -count=1 -run TestBusyServerKeepsToRedis . -busy 8
	@echo "== rald: 100,000 pairs of configuration and request"
	@cd cmd/rald/oracle && $(GO) test -count=1 . -pairs 100000 -seed 100001
	@echo "== rald: the build of its Dockerfile"
	@cd cmd/rald && $(GO) test -count=1 -run TestDockerfile . -build
	@echo "== rald: 30,000 connections with garbage"
	@cd cmd/rald && $(GO) test -count=1 -run TestAttacks . -connections 30000

# go.mod and go.sum say what the code needs, no more and no less.
tidy:
	@set -e; for m in $(MODULES); do echo "== $$m: go mod tidy"; (cd $$m && $(GO) mod tidy -diff); done

platforms:
	@echo "== 32 bits and arm64"
	@GOARCH=386 $(GO) vet $(call packages,$(MODULES))
	@GOARCH=arm64 $(GO) vet $(call packages,$(MODULES))
	@echo "== .: wasm"
	@GOOS=js GOARCH=wasm $(GO) build $(CORE)
	@GOOS=wasip1 GOARCH=wasm $(GO) build $(CORE)

# Pages run in a browser's processes, which the race detector does not see.
race:
	@$(MAKE) --no-print-directory -j2 test-waiting test-others FLAGS="-race -skip InABrowser"

# TestSchedules tries the same schedules on any number of processors of any width, and
# policies are pure functions.
processors:
	@echo "== .: the race detector on 1 to 16 processors"
	@$(GO) test -count=1 -race -cpu 1,2,4,16 ./cmdqueue ./supervisor ./janitor ./cell
	@echo "== .: 1 processor"
	@$(GO) test -count=1 -cpu 1 -skip TestSchedules $(CONCURRENT)
	@if [ "$$($(GO) env GOHOSTARCH)" = amd64 ]; then \
		if GOARCH=386 $(GO) test -run '^$$' ./policy 2>&1 | grep -q 'exec format error'; then \
			echo "== .: this kernel runs no 32-bit programs, they are only vetted"; \
		else export GOARCH=386; fi; \
	fi; \
	echo "== .: 4 processors, $$($(GO) env GOARCH)"; \
	$(GO) test -count=1 -cpu 4 -skip TestSchedules $(CORE)

# A browser for ralbench's page, a Redis for its peers, a Prometheus for the metrics, curl for
# connectlimit, nginx and Caddy for rald, h2load for ralbench -serve; installed if they are
# missing and that can be done.
needs:
	@./tools/need-chromium
	@./tools/need-redis
	@./tools/need-prometheus
	@./tools/need-curl
	@./tools/need-nginx
	@./tools/need-caddy
	@./tools/need-h2load

# The linters of .golangci.yml.
lint:
	@echo "== linters"
	@$(LINTER) run --allow-parallel-runners $(call packages,$(MODULES))

# Go benchmarks of the parts, in the form that benchstat compares. For the whole,
# side by side with yardsticks and other limiters: go run ./cmd/ralbench
bench:
	$(GO) test -run '^$$' -bench . -benchmem -count 6 ./...

# The hot path beside that of another commit, in turn: make benchstat BASE=v0.1.0
benchstat:
	@./tools/benchstat $(BASE)

# Prepares a release, and pushes nothing: make release VERSION=v0.1.0. See RELEASING.md.
release:
	@./tools/release "$(VERSION)"

# The long parts of docs/torture.md, one after the other: FOR seconds in all, after the
# core's tests under the race detector on few and many processors.
torture:
	$(GO) test -race -count=1 -cpu 1,2,4,16 -timeout 0 $(CORE)
	cd torture && $(GO) test ./simulation -run TestLong -for $$(($(FOR)/6))s -timeout 0 -v
	cd torture && $(GO) test ./linear -run TestLinearizable -for $$(($(FOR)/6))s -timeout 0 -v
	cd torture && $(GO) test ./soak -run TestSoak -for $$(($(FOR)/6))s -timeout 0 -v
	cd torture && $(GO) test ./soak -run TestClock -clock $$(($(FOR)/6))s -timeout 0 -v
	cd torture && $(GO) test ./hostile -run TestCost -for $$(($(FOR)/6))s -timeout 0 -v
	cd torture && $(GO) test ./properties -for $$(($(FOR)/6))s -timeout 0 -v

# Takes each safety mechanism out in turn and sees that a test fails: docs/mutations.md.
mutation:
	$(GO) run ./tools/mutation -o mutation.md

# Every fuzz target in turn, FUZZTIME each.
fuzz:
	@set -e; for p in $$($(GO) list ./...); do \
		for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz' || true); do \
			echo "== $$p $$f"; $(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) $$p; \
		done; \
	done
