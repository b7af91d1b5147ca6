# islet's build. `make help` explains the targets; CI runs `make test`.
SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VERSION  ?= 0.1.0
GOARCH   ?= $(shell go env GOHOSTARCH 2>/dev/null)
CACHE    := .cache
SHIM_DIR := runtime/shim/embedded
SHIM     := $(SHIM_DIR)/islet-shim-$(GOARCH).zst
LDFLAGS  := -s -w
BUDGET_MB := 47
DIST      := dist/islet-$(VERSION)-linux-$(GOARCH)
# Nodes of the simulated fleet in `make bench`: 10000 take about 8 minutes of CPU and 6 GB of memory.
FLEET     ?= 10000
DIST_ARCHS := amd64 arm64 arm riscv64

# Everything ships as static binaries; only -race needs cgo, in tests.
export CGO_ENABLED ?= 0
GO_BUILD = go build -trimpath -buildvcs=false -tags grpcnotrace -ldflags '$(LDFLAGS) -X main.version=$(VERSION)'

# sudo has a PATH of its own, in which Go often is not.
ifeq ($(shell command -v go),)
ifneq ($(filter-out help stop clean,$(or $(MAKECMDGOALS),help)),)
$(error Go is not in the PATH ($(PATH)). If you have it, keep your PATH over sudo: sudo env "PATH=$$PATH" make $(MAKECMDGOALS). Else install it: https://go.dev/doc/install)
endif
endif

.PHONY: help
help: ## show this help
	@echo 'islet: a Kubernetes node in one binary. Targets:'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: bin/islet budget ## build bin/islet: static, stripped, the shim embedded

.PHONY: bin/islet
bin/islet: shim
	GOARCH=$(GOARCH) $(GO_BUILD) -o $@ .

# The shim depends on nothing but Go code; the Go build cache makes an unchanged
# one cheap, and packing it gives the same bytes again.
.PHONY: shim
shim:
	@mkdir -p $(CACHE)/shim
	@rm -f $(filter-out $(SHIM),$(wildcard $(SHIM_DIR)/*.zst)) # the binary embeds what lies there
	GOARCH=$(GOARCH) GOARM=7 $(GO_BUILD) -o $(CACHE)/shim/islet-shim-$(GOARCH) ./runtime/shim/cmd
	GOARCH= go run ./runtime/shim/pack $(CACHE)/shim/islet-shim-$(GOARCH) $(SHIM)

.PHONY: size
size: bin/islet budget ## the size of bin/islet by module
	GOARCH=$(GOARCH) go build -trimpath -buildvcs=false -tags grpcnotrace -ldflags '-X main.version=$(VERSION)' -o $(CACHE)/islet.symbols .
	GOARCH= go run ./packaging/inspect size $(CACHE)/islet.symbols

.PHONY: budget
budget:
	@mb=$$(( ($$(stat -c %s bin/islet) + 999999) / 1000000 )); \
	echo "bin/islet: $$mb MB (budget $(BUDGET_MB) MB)"; [ $$mb -le $(BUDGET_MB) ]

.PHONY: deps
deps: # install what running and testing need and this machine lacks (Debian)
	@packaging/deps.sh $(DEPS)

.PHONY: run
run: build demo-image ## build, install what is missing, start a node with demo pods
	@packaging/deps.sh run
	@packaging/demo/node.sh start

.PHONY: stop
stop: ## stop the node of `make run` and remove everything it made
	@packaging/demo/node.sh stop

.PHONY: demo-image
demo-image:
	@mkdir -p $(CACHE)/demo
	GOARCH= $(GO_BUILD) -o $(CACHE)/demo/demo ./packaging/demo
	GOARCH= go run ./packaging/mkimage -ref localhost/islet-demo:dev -entrypoint /demo -o $(CACHE)/demo/islet-demo.tar $(CACHE)/demo/demo

.PHONY: check
check: ## formatting, vet, import rules, modules, known vulnerabilities, documents
	@bad=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$bad" ] || { echo "not formatted: $$bad"; exit 1; }
	go mod tidy -diff
	go vet ./...
	cd test && go vet ./...
	go test -count=1 -run 'TestLayers|TestDependencies|TestHomes|TestBinary|TestDocs|TestLogKeys' . ./agent/config
	@packaging/vulncheck.sh

.PHONY: test
test: ## all tests, as CI runs them (root needed)
	@packaging/deps.sh run test vm
	$(MAKE) build check demo-image
	CGO_ENABLED=1 go test -race -timeout 20m ./...
	$(MAKE) dist-one
	cd test && CGO_ENABLED=1 ISLET_BIN=$(CURDIR)/bin/islet ISLET_DIST=$(CURDIR)/$(DIST).tar.gz go test -race -count=1 -timeout 40m ./...
	test/remote/programs.sh >/dev/null
	cd test && ISLET_CONTAINERD=$(CURDIR)/$(CACHE)/containerd ISLET_BIN=$(CURDIR)/bin/islet go test -count=1 -timeout 20m ./remote
	$(MAKE) test-cluster CLUSTER_DIST=$(CURDIR)/$(DIST).tar.gz

.PHONY: test-cluster
test-cluster: build ## the tests against a real control plane, which is built from its Go modules
	@packaging/deps.sh run test
	test/cluster/build.sh
	cd test/csidriver && go vet ./... && go test -count=1 ./...
	cd test/cluster && go vet -trimpath ./... && ISLET_CONTAINERD=$(wildcard $(CURDIR)/$(CACHE)/containerd) ISLET_DIST=$(CLUSTER_DIST) ISLET_BIN=$(CURDIR)/bin/islet go test -trimpath -count=1 -parallel 4 -timeout 40m ./...

.PHONY: test-long
test-long: build ## the tests that wait for time limits of minutes (root needed)
	@packaging/deps.sh run test
	ISLET_TEST_LONG=1 CGO_ENABLED=1 go test -race -v -count=1 -timeout 30m -run 'TestAccountsSwapped|TestExecSwappedLong' ./runtime/ctrd
	test/cluster/build.sh
	cd test/cluster && ISLET_TEST_LONG=1 ISLET_BIN=$(CURDIR)/bin/islet go test -trimpath -v -count=1 -timeout 20m -run 'TestNodeAndPodsDeleted' ./node

.PHONY: test-page
test-page: ## the status page in a real browser; pictures of it in .cache/page
	@packaging/deps.sh page
	@mkdir -p $(CACHE)/page
	ISLET_BROWSER=$$(command -v chromium-headless-shell || command -v chromium) ISLET_PAGE_SHOTS=$(CURDIR)/$(CACHE)/page go test -count=1 -v -run TestBrowser ./agent/page

.PHONY: critest
critest: build ## the CRI validation suite and crictl, from their Go module, against the CRI socket (root needed)
	@packaging/deps.sh run test critest
	test/critest/build.sh >/dev/null
	cd test && ISLET_CRITEST=$(CURDIR)/$(CACHE)/critest ISLET_BIN=$(CURDIR)/bin/islet go test -v -count=1 -timeout 30m ./critest

# Both run in slices, too: ISLET_CONFORMANCE_SLICE=7 runs for that many minutes what has no result yet in
# .cache/conformance/{conformance,node}.txt. ISLET_CONFORMANCE_FOCUS, _SKIP and _PROCS choose what runs: docs/conformance.md.
.PHONY: conformance
conformance: build ## Kubernetes' own end-to-end suite, from its Go module, against two nodes (root needed, 20 to 30 minutes)
	@packaging/deps.sh run test conformance
	test/cluster/build.sh >/dev/null
	test/cluster/conformance/build.sh >/dev/null
	cd test/cluster && ISLET_CONFORMANCE=$(CURDIR)/$(CACHE)/conformance ISLET_BIN=$(CURDIR)/bin/islet go test -trimpath -v -count=1 -timeout 240m -run 'TestSuite$$' ./conformance

.PHONY: conformance-storage
conformance-storage: build ## Kubernetes' own specs of CSI drivers and dynamic resources, against two nodes (root needed, 20 to 30 minutes)
	@packaging/deps.sh run test conformance
	test/cluster/build.sh >/dev/null
	test/cluster/conformance/build.sh drivers >/dev/null
	cd test/cluster && ISLET_CONFORMANCE=$(CURDIR)/$(CACHE)/conformance ISLET_BIN=$(CURDIR)/bin/islet go test -trimpath -v -count=1 -timeout 240m -run 'TestStorageSuite$$' ./conformance

.PHONY: conformance-node
conformance-node: build ## Kubernetes' own node suite, from its Go module, on a node (root needed, 15 to 30 minutes)
	@packaging/deps.sh run test conformance
	test/cluster/build.sh >/dev/null
	test/cluster/conformance/build.sh >/dev/null
	cd test/cluster && ISLET_CONFORMANCE=$(CURDIR)/$(CACHE)/conformance ISLET_BIN=$(CURDIR)/bin/islet go test -trimpath -v -count=1 -timeout 240m -run 'TestNodeSuite$$' ./conformance

.PHONY: test-remote
test-remote: build ## nodes whose containers run in containerd: Debian's, and a current one from its Go module (root needed)
	@packaging/deps.sh run test
	test/remote/programs.sh >/dev/null
	ISLET_CONTAINERD=$(CURDIR)/$(CACHE)/containerd ISLET_BIN=$(CURDIR)/bin/islet go test -count=1 -timeout 20m -run TestContainerdSuite ./runtime/remote
	cd test && ISLET_CONTAINERD=$(CURDIR)/$(CACHE)/containerd ISLET_BIN=$(CURDIR)/bin/islet go test -count=1 -timeout 20m ./remote
	test/cluster/build.sh >/dev/null
	cd test/cluster && ISLET_CONTAINERD=$(CURDIR)/$(CACHE)/containerd ISLET_BIN=$(CURDIR)/bin/islet go test -trimpath -count=1 -timeout 20m -run TestRemote ./node

.PHONY: test-vm
test-vm: ## the long test in a virtual machine: 20 power cuts
	@packaging/deps.sh run test vm
	$(MAKE) build dist-one
	cd test && ISLET_VM_CUTS=20 ISLET_VM_HARDWARE=1 ISLET_DIST=$(CURDIR)/$(DIST).tar.gz go test -v -count=1 -timeout 120m ./vm

.PHONY: test-hardware
test-hardware: ## devices of the kernel's and the emulator's in a virtual machine: USB, cameras, I2C, disks
	@packaging/deps.sh run test vm
	$(MAKE) build dist-one
	cd test && ISLET_VM_HARDWARE=1 ISLET_DIST=$(CURDIR)/$(DIST).tar.gz go test -v -count=1 -timeout 30m -run TestHardware ./vm

.PHONY: bench
bench: build ## measure the node: memory, CPU, latency, disk and wire
	@packaging/deps.sh run
	ISLET_FLEET=$(FLEET) go test -count=1 -timeout 60m -run TestReturnOfAFleet -v ./edge/link
	cd test && ISLET_BENCH=1 ISLET_BIN=$(CURDIR)/bin/islet go test -count=1 -timeout 60m -run 'TestFigures|TestScrape' ./bench -v
	test/cluster/build.sh
	cd test/cluster && ISLET_BENCH=1 ISLET_BIN=$(CURDIR)/bin/islet go test -trimpath -count=1 -timeout 90m -run 'TestFigures|TestFleet' ./bench -v
	cd test/cluster && ISLET_BENCH=1 ISLET_BIN=$(CURDIR)/bin/islet go test -trimpath -count=1 -timeout 20m -run TestThirtyCSI ./node -v

.PHONY: dist
dist: ## cross-build tarballs for amd64, arm64, armv7 and riscv64 in dist/
	@for a in $(DIST_ARCHS); do $(MAKE) --no-print-directory dist-one GOARCH=$$a; done
	@ls -l dist/*.tar.gz

.PHONY: dist-one
dist-one: shim
	@rm -rf $(DIST) && mkdir -p $(DIST)
	GOARCH=$(GOARCH) GOARM=7 $(GO_BUILD) -o $(DIST)/islet .
	GOARCH= go run ./packaging/inspect sbom $(DIST)/islet $(VERSION) >$(DIST)/islet.spdx.json
	@cp -r packaging/systemd packaging/openrc packaging/kubeadm packaging/install.sh LICENSE $(DIST)/
	GOARCH= GOARM= go run . man $(DIST)/man
	@mkdir -p $(DIST)/completion
	@for shell in bash zsh fish; do GOARCH= GOARM= go run . completion $$shell >$(DIST)/completion/$$shell; done
	@tar -C dist --sort=name --owner=0 --group=0 --numeric-owner -czf $(DIST).tar.gz $(notdir $(DIST))

.PHONY: clean
clean: ## remove what was built
	rm -rf bin dist $(CACHE) $(SHIM_DIR)/*.zst
