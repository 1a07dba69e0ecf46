# Every module of the repository: what is more than the core needs has one of its own.
MODULES := . cmd/ral cmd/ralbench cmd/rald cmd/rald/oracle examples fleet observe/ralotel observe/ralprom rpc test
# The tests of these packages mostly wait, for Redis, for browsers and for other programs, and run
# beside the others.
WAITING := cmd/ral cmd/ralbench cmd/rald examples fleet test/pages test/scrape
COMPUTING := . cmd/rald/oracle observe/ralotel observe/ralprom rpc test/charts test/mutation test/release test/sdks test/sidebyside test/snippets test/torture
# Tests of these endings need the programs of others, or kill processes. Those that end in
# OverTheNetwork fetch programs first, and run in make nightly alone.
PROGRAMS := (InABrowser|BehindProxies|WithClients|WithProcesses|ByPrometheus)
with_programs = $(sort $(dir $(shell grep -rlE 'func Test[A-Za-z]*$(PROGRAMS)[^A-Za-z]' --include='*_test.go' .)))
packages = $(foreach m,$(1),$(patsubst ././%,./%,./$(m)/...))

GO       ?= go
FUZZTIME ?= 1m
# How long make check runs each fuzz target; empty is not at all.
FUZZ     ?= 10s
# Whether make check tries clients that npm installs; empty is not at all.
SDKS     ?= yes
# How long make torture takes, in seconds.
FOR      ?= 3600

# Packages whose code runs on many goroutines at once, or decides what they are told.
CONCURRENT := ./cmdqueue ./supervisor ./table ./janitor ./cell ./engine ./single ./httplimit
# Packages whose tests are run on other platforms and numbers of processors, too.
CORE := ./policy $(CONCURRENT)
# Packages that make check runs under the race detector. make nightly runs all.
RACED := $(CONCURRENT) ./internal/core/waitline ./fleet/internal/...

# The linters, and what compares benchmarks with make benchstat.
LINTER ?= $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
BASE ?= origin/main

.PHONY: test check nightly needs tidy vet format lint platforms bench benchstat fuzz torture mutation rehearsal release pictures

# Says what runs, and repeats failures at the end: go doc ./tools/testrun. With -trimpath
# clones of the repository share what is compiled.
RUN = $(GO) build -o bin/testrun ./tools/testrun && bin/testrun
# make -n must not run what it names.
AGAIN = $(MAKE) -s
export GOFLAGS := $(shell $(GO) env GOFLAGS) -trimpath
# Images and releases are built without C, so that tests which build them find all packages compiled.
# The race detector alone needs C.
export CGO_ENABLED := 0
RACE := CGO_ENABLED=1 $(GO) test -race

# What to run before each commit: vet and the tests of all modules, except the tests that -short
# leaves out. What waits runs beside what computes.
test: needs
	@$(RUN) -j 3 \
		"format: $(AGAIN) format" \
		"waiting: $(GO) test -count=1 -timeout 30m -vet=all -short $(call packages,$(WAITING))" \
		"computing: $(GO) test -count=1 -timeout 30m -vet=all -short $(call packages,$(COMPUTING))"

# What to run before a pull request, besides make test: the programs of others, the race detector on
# the concurrent core, and one pass of each oracle. The simulation has the same seeds each time, so that no
# change is refused for what another one left; make torture has others.
check: needs
	@$(RUN) -j 2 \
		"words: $(GO) run ./tools/words" \
		"names: $(GO) run ./tools/names" \
		"race: $(RACE) -count=1 -timeout 30m -short $(RACED)" \
		"programs: $(GO) test -count=1 -timeout 30m -run $(PROGRAMS)$$ $(with_programs)" \
		"tidy: $(AGAIN) tidy" \
		"32 bits: GOARCH=386 $(GO) vet $(call packages,. fleet cmd/ral)" \
		"rehearsal: $(AGAIN) rehearsal" \
		$(if $(FUZZ),"fuzz: ./tools/fuzz $(FUZZ)") \
		$(if $(SDKS),"sdks: $(GO) test -count=1 ./test/sdks") \
		"schedules: $(GO) test -count=1 -run ^TestSchedules ./table" \
		"simulation: $(GO) test -count=1 -run ^TestSeeds ./test/torture/simulation -first 100001 -seeds 50000" \
		"shares: $(GO) test -count=1 -run ^TestSharesHoldTheirBound ./engine" \
		"linear: $(GO) test -count=1 -run ^TestLinearizable ./test/torture/linear -for 10s" \
		"properties: $(GO) test -count=1 ./test/torture/properties -for 10s" \
		"oracle: $(GO) test -count=1 ./cmd/rald/oracle -pairs 10000 -seed 100001"

# What repeats make check for longer, at more numbers of processors, or with the programs of
# others: every test, and every test under the race detector. Pages run in a browser's
# processes, which the detector does not see. TestSchedules tries the same schedules on any
# number of processors, and policies are pure functions.
nightly: export RAL_SEED := random
nightly: needs
	@$(RUN) -j 2 \
		"lint: $(AGAIN) lint" \
		"manifests: ./tools/manifests" \
		"platforms: $(AGAIN) platforms" \
		"waiting: $(GO) test -count=1 -timeout 30m $(call packages,$(WAITING))" \
		"computing: $(GO) test -count=1 -timeout 30m $(call packages,$(COMPUTING))" \
		"race, waiting: $(RACE) -count=1 -timeout 60m -skip InABrowser $(call packages,$(WAITING))" \
		"race, computing: $(RACE) -count=1 -timeout 60m -skip InABrowser $(call packages,$(COMPUTING))" \
		"race on 1 to 16 processors: $(RACE) -count=1 -timeout 60m -cpu 1,2,4,16 ./cmdqueue ./supervisor ./janitor ./cell" \
		"1 processor: $(GO) test -count=1 -cpu 1 -skip ^TestSchedules $(CONCURRENT)" \
		"4 processors: $(GO) test -count=1 -cpu 4 -skip ^TestSchedules $(CORE)" \
		"32 bits: $(AGAIN) narrow" \
		"simulation: $(GO) test -count=1 -run ^TestSeeds ./test/torture/simulation -first 100001 -seeds 200000" \
		"linear: $(GO) test -count=1 -run ^TestLinearizable ./test/torture/linear -for 20s -seed 0" \
		"properties: $(GO) test -count=1 ./test/torture/properties -for 20s -rapid.seed 0" \
		"oracle: $(GO) test -count=1 -timeout 60m ./cmd/rald/oracle -pairs 100000 -seed 100001"

vet:
	@$(GO) vet $(call packages,$(MODULES))

format:
	@test -z "$$(gofmt -l .)" || { echo "run gofmt -w on:"; gofmt -l .; exit 1; }

# go.mod and go.sum say what the code needs, no more and no less.
tidy:
	@./tools/tidy

# Vetting compiles the tests, too; the core's are linked, and built for more systems. As all dependencies
# are compiled for each platform, make check vets the libraries for 32 bits alone.
platforms:
	@GOARCH=386 $(GO) vet $(call packages,$(MODULES))
	@GOARCH=arm64 $(GO) vet $(call packages,$(MODULES))
	@for platform in linux/386 linux/arm64 windows/amd64 darwin/arm64; do \
		export GOOS=$${platform%/*} GOARCH=$${platform#*/} CGO_ENABLED=0 && echo $$platform && \
		$(GO) vet $(CORE) && $(GO) test -c -o /dev/null $(CORE) || exit 1; done
	@GOOS=js GOARCH=wasm $(GO) build $(CORE)
	@GOOS=wasip1 GOARCH=wasm $(GO) build $(CORE)

# The core as 32-bit programs, if this machine runs them.
narrow:
	@if GOARCH=386 $(GO) test -run '^$$' ./policy 2>&1 | grep -q 'exec format error'; then \
		echo "this kernel runs no 32-bit programs, they are only vetted"; \
	else GOARCH=386 $(GO) test -count=1 -cpu 4 -skip TestSchedules $(CORE); fi

# The programs that tests run, installed if they are missing and that can be done.
needs:
	@./tools/need

# The linters of .golangci.yml.
lint:
	@$(LINTER) run --allow-parallel-runners $(call packages,$(MODULES))

# Go benchmarks of the parts, in the form that benchstat compares. For the whole,
# side by side with yardsticks and other limiters: go run ./cmd/ralbench
bench:
	$(GO) test -run '^$$' -bench . -benchmem -count 6 ./...

# The hot path beside that of another commit, in turn: make benchstat BASE=v0.1.0
benchstat:
	@./tools/benchstat $(BASE)

# Does with a release of what is committed what users do: go doc ./test/release. Whatever becomes of
# it, nothing of the modules that it fetches is left behind.
rehearsal:
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && trap 'exit 130' INT TERM && \
		TMPDIR=$$folder $(GO) test -count=1 -timeout 60m -run ^TestRehearsal ./test/release

# Makes the pictures of docs/operating.md from programs under load, in about three minutes: the situations
# and the explained key, for light and dark schemes, on a laptop and a phone. Those of docs/replay.md are of
# the pages that ral writes for a made-up log.
pictures:
	SCREENSHOTS=$(CURDIR)/docs/images $(GO) test -count=1 -run '^Test(Situations|Replay)InABrowser' ./test/pages

# Prepares a release, and pushes nothing: make release VERSION=v0.1.0. See RELEASING.md.
release:
	@./tools/release "$(VERSION)"

# The long parts of docs/torture.md, one after the other: FOR seconds in all, after the
# core's tests under the race detector on few and many processors.
torture:
	$(RACE) -count=1 -cpu 1,2,4,16 -timeout 0 $(CORE)
	cd test/torture && $(GO) test ./simulation -run TestLong -for $$(($(FOR)/6))s -timeout 0 -v
	cd test/torture && $(GO) test ./linear -run TestLinearizable -seed 0 -for $$(($(FOR)/6))s -timeout 0 -v
	cd test/torture && $(GO) test ./soak -run TestSoak -seed 0 -for $$(($(FOR)/6))s -timeout 0 -v
	cd test/torture && $(GO) test ../../internal/core/clock -run OfThisMachine -for $$(($(FOR)/6))s -timeout 0 -v
	cd test/torture && $(GO) test ./hostile -run TestCost -for $$(($(FOR)/6))s -timeout 0 -v
	cd test/torture && $(GO) test ./properties -rapid.seed 0 -for $$(($(FOR)/6))s -timeout 0 -v

# Takes safety mechanisms out in turn, for an hour, and sees that a test fails: docs/mutations.md.
mutation:
	$(GO) run ./test/mutation -o mutation.md

# Every fuzz target, FUZZTIME each, four at once.
fuzz:
	@./tools/fuzz $(FUZZTIME)
