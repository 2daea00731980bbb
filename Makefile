# Every target works in a fresh clone with Go, git and make.
GO ?= go
TEST_TIMEOUT ?= 20m

.PHONY: help build demo test equivalence short race invariants lint fmt gen gen-check fuzz bench bench-aggs bench-vectors bench-kernels bench-cluster bench-cluster-large bench-shards bench-check quality tail crash faults clock hostile summa-client kube check clean

help: ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  \1|\2/p' Makefile | awk -F'|' '{printf "%-16s %s\n", $$1, $$2}'

build: ## build bin/weft
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/weft ./cmd/weft

demo: build ## index the Go standard library's documentation, answer three queries
	./bin/weft dev --demo --demo-check --http 127.0.0.1:0

test: ## every test, with the race detector; allocation counts without it
	$(GO) vet ./...
	$(GO) test -race -timeout $(TEST_TIMEOUT) ./...
	$(GO) test -run Alloc ./internal/... # allocations cannot be counted under the race detector
	cd bench && $(GO) vet ./... && $(GO) test -short ./...

equivalence: ## thousands of generated questions to clusters and to one node; half a minute
	$(GO) test -count=1 -run TestAClusterAnswersLikeOneNode ./internal/cli/clustertest

short: ## the quick tests, without the race detector
	$(GO) test -short ./...

invariants: ## the engine's tests with its internal checks compiled in
	$(GO) test -tags invariants -timeout $(TEST_TIMEOUT) ./internal/invariant/... ./internal/segment/... ./internal/shard/...

lint: ## vet, staticcheck, gofumpt and dead code
	$(GO) vet ./...
	$(GO) tool -modfile=tools/go.mod staticcheck ./...
	@test -z "$$($(GO) tool -modfile=tools/go.mod gofumpt -l cmd internal)" || { $(GO) tool -modfile=tools/go.mod gofumpt -d cmd internal; exit 1; }
	@out=$$($(GO) tool -modfile=tools/go.mod deadcode -test ./...); test -z "$$out" || { echo "$$out"; exit 1; }

fmt: ## format
	$(GO) tool -modfile=tools/go.mod gofumpt -w cmd internal

gen: ## make generated code again
	$(GO) generate ./...

gen-check: ## what is generated is what its sources make, and the wire has not changed (builds buf: minutes at first)
	WEFT_GEN_CHECK=1 $(GO) test -count=1 -v -run TestGenerated ./api # -v: a test that skips says why

FUZZTIME ?= 5s
# go test now and then calls the end of the time a failure, "context deadline exceeded", without an input that fails: then it is run again.
fuzz: ## run every fuzz target for FUZZTIME
	@set -e; for pkg in $$($(GO) list ./...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    echo "$$pkg $$f"; \
	    run="$(GO) test -run ^$$ -fuzz ^$$f$$ -fuzztime $(FUZZTIME) -fuzzminimizetime 20x $$pkg"; \
	    if ! out=$$($$run 2>&1); then \
	      echo "$$out"; \
	      case "$$out" in *"Failing input"*) exit 1;; *"context deadline exceeded"*) echo "once more"; $$run;; *) exit 1;; esac; \
	    fi; \
	  done; done

bench-check: ## one iteration of every benchmark
	$(GO) test -run '^$$' -bench . -benchtime 1x ./...

bench: ## weft beside bleve, Lucene and tantivy (about five minutes once built)
	cd bench && $(GO) run ./cmd/compare

bench-aggs: ## aggregations beside bleve's facets over a million documents (about ten minutes, most of them bleve's indexing)
	cd bench && $(GO) run ./aggs

bench-vectors: ## exact and graph search over 100,000 vectors beside a Go peer (about six minutes)
	cd bench && $(GO) run ./vectors

bench-kernels: ## distance kernels beside other Go kernels and the memory's bandwidth
	cd bench && $(GO) run ./kernels

bench-cluster: ## a broker over three shards beside one node, real processes in turns (about eight minutes)
	cd bench && $(GO) run ./cluster

bench-cluster-large: ## ten million small documents over eight shards: memory, load, latencies (about four minutes, 3 GB of disk)
	cd bench && $(GO) run ./cluster -large

bench-shards: ## a Summa broker over eight shards beside one shard, and ranking over all of them (about three minutes)
	cd bench && $(GO) run ./shards

quality: ## nDCG@10 and MAP on Cranfield; recall@10 of graphs on real vectors
	$(GO) test -count=1 -v -run TestRankingQuality ./internal/shard
	$(GO) test -count=1 -v -run TestRecallOnRealVectors ./internal/vector

tail: ## the tail of the serving tree with and without hedging, in virtual time (minutes)
	WEFT_TAIL=full $(GO) test -count=1 -timeout 60m -v -run TestTailTable ./internal/serve/simulate

crash: ## 200 rounds of SIGKILL under a write load (long)
	WEFT_CRASH_ROUNDS=200 $(GO) test -count=1 -timeout 60m -v ./internal/cli/crashtest

FAULTS_FOR ?= 10m
FAULTS_SEED ?= 0
faults: ## random faults of networks, processes, disks and clocks on a cluster of processes under load, for FAULTS_FOR (Linux)
	$(GO) test -count=1 -timeout 0 -v -run TestRandomFaults ./internal/cli/faulttest -faults.for $(FAULTS_FOR) -faults.seed $(FAULTS_SEED) -faults.clock

clock: ## wall clocks that jump under a cluster of processes (Linux; half a minute, and one more when the standard library is built)
	$(GO) test -count=1 -timeout 20m -v -run 'Clock' ./internal/cli/faulttest -faults.seed $(FAULTS_SEED) -faults.clock

hostile: ## clients that do not read, do not send, leave or ask nonsense, before a broker of processes (minutes)
	WEFT_HOSTILE=full $(GO) test -count=1 -timeout 60m -v ./internal/cli/hostiletest

summa-client: ## the published Python client of Summa against a node and a broker (takes Python 3 and the package registry; a minute)
	WEFT_SUMMA_CLIENT=1 $(GO) test -count=1 -timeout 10m -v ./internal/cli/summatest ./api/summa

kube: ## discovery of pods and deploy/ against a real Kubernetes API server, built from its modules (six minutes of processor time at first)
	WEFT_KUBE=1 $(GO) test -count=1 -timeout 60m -v -run TestAgainstARealAPIServer ./internal/topology/pods

e2e-summa: ## a broker before two real Summa servers, and beside a real broker, by SUMMA_SERVER and SUMMA_BROKER or from the path (cargo install summa-server summa-broker: Rust 1.98, protoc); says why where it skips
	WEFT_E2E_SUMMA=1 WEFT_SUMMA_CLIENT=1 $(GO) test -count=1 -timeout 20m -v -run TestRealSumma ./internal/cli/brokertest ./internal/cli/summatest

check: lint test invariants ## what continuous integration runs

clean: ## remove what the build made
	rm -rf bin
