# islet's build. `make help` explains the targets; CI runs `make test`. A target is listed there by
# `## GROUP: what it does`.
SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VERSION  ?= 0.2.0
GOARCH   ?= $(shell go env GOHOSTARCH 2>/dev/null)
CACHE    := .cache
SHIM_DIR := runtime/shim/embedded
SHIM     := $(SHIM_DIR)/islet-shim-$(GOARCH).zst
# Functions are aligned at 16 bytes on amd64, as on arm64, and not at the linker's 32. It makes the program 0.37 MB smaller.
LDFLAGS   = -s -w $(if $(filter amd64,$(GOARCH)),-funcalign=16)
BUDGET_MB := 50
DIST      := dist/islet-$(VERSION)-linux-$(GOARCH)
# Nodes of the simulated fleet in `make bench`: 10000 take about 8 minutes of CPU and 6 GB of memory.
FLEET     ?= 10000
DIST_ARCHS := amd64 arm64 arm riscv64

# The time in shipped files is the time of the commit, so that the same commit gives the same bytes.
export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)

# All shipped binaries are static. Only tests with -race need cgo.
export CGO_ENABLED ?= 0
# Programs, tests and vet are compiled with the settings of the shipped program. Go's cache keeps a
# package once for each set of settings. No program is shipped with DWARF, and without it the compilers take a tenth less CPU time.
NO_DWARF := -dwarf=false
# These packages are compiled without inlining, which makes the program smaller:
# - the generated code of Kubernetes' types: 0.66 MB. Encoding a pod takes a third longer, which is some microseconds
# - the commands and backups, which run for seconds at most: 0.14 MB
# - packages that only work when the agent, a sandbox or a garbage collection starts or ends: 0.13 MB
# - the container runtime, whose calls wait for other processes: 0.12 MB
# - changes of the configuration, of bundles and of the version: 0.09 MB
# - the devices of pods, except the topology manager: 0.05 MB. Their changes wait for plugins, drivers and the disk
# - the link and the certificates, which wait for the network: 0.01 MB
# - volumes and the CSINode, which wait for the kernel, drivers and the network: 0.07 MB
# - the configuration, the sources of pods and signed files, whose changes come from a disk or the network, and the TPM, which
#   is used once for each start: 0.46 MB
# - the paths of the local socket, the sessions, the status page and remote runtimes, which wait for people and other processes: 0.08 MB
NOT_INLINED := k8s.io/api/... $(addprefix github.com/islet-edge/islet/,agent/change/... agent/cli/... agent/doctor/... agent/host/... agent/pod/collect \
	edge/backup edge/csinode edge/link edge/podcertificate edge/supervisor internal/hostcommand internal/registry net/... \
	runtime/ctrd runtime/daemon runtime/image runtime/ocispec runtime/taskshim runtime/remote \
	agent/engine/... agent/volume/... agent/kubelet/describe agent/kubelet/page agent/kubelet/server/local/... agent/kubelet/server/streams \
	agent/device agent/device/c... agent/device/d... agent/device/hardware agent/device/m... agent/device/p... \
	agent/cluster/... agent/plugin/... edge/brake edge/check edge/configsource edge/inventory edge/local edge/manifest edge/remotedialer \
	edge/review edge/twin internal/bundle internal/config internal/download internal/k3s internal/release internal/rollout internal/signed) \
	filippo.io/age/... github.com/google/go-tpm/...
SMALL := $(NOT_INLINED:%='-gcflags=%=-l $(NO_DWARF)')
GOFLAGS_OF_ALL := -trimpath -tags=grpcnotrace -gcflags=all=$(NO_DWARF) $(SMALL)
export GOFLAGS := $(filter-out $(GOFLAGS_OF_ALL),$(shell go env GOFLAGS 2>/dev/null)) $(GOFLAGS_OF_ALL)
GO_HERE = GOARCH= GOARM= go run .
GO_BUILD = go build -trimpath -buildvcs=false -tags grpcnotrace -ldflags '$(LDFLAGS) -X main.version=$(VERSION)'

# The race detector does not instrument the compressors, the hashes, and SQLite and its libc (C in Go), because they take
# several times the CPU with it. Locks and channels in them still order the accesses of their callers; atomics do not.
# So a package whose atomics order its callers must not be in this list, nor one that uses sync.Map or the like: its copy
# of their generic code may become that of the whole program. TestUnraced checks it. test-long instruments all packages
# (UNRACED=).
UNRACED := compress/... hash/... github.com/klauspost/compress/... modernc.org/libc modernc.org/sqlite/lib
RACE_FLAGS = -race -gcflags=all=$(NO_DWARF) $(UNRACED:%='-gcflags=%=-race=false $(NO_DWARF)')

# go.mod names the toolchain for shipped programs. An older one on this machine has known
# faults; with auto, Go downloads the named one as a module.
export GOTOOLCHAIN = auto

# sudo has its own PATH, which often does not contain Go.
ifeq ($(shell command -v go),)
ifneq ($(filter-out help stop clean,$(or $(MAKECMDGOALS),help)),)
$(error Go is not in the PATH ($(PATH)). If you have it, keep your PATH over sudo: sudo env "PATH=$$PATH" make $(MAKECMDGOALS). Else install it: https://go.dev/doc/install)
endif
endif

.PHONY: help
help: ## tidy: show this list
	@echo 'islet: a Kubernetes node in one binary. What do you want to do?'
	@awk -F ':.*## ' 'BEGIN { n = split("try,check,measure,ship,suites,one subject,tidy", order, ","); \
		split("Try it,Check a change,Measure it,Ship it,Run suites of other projects,Test one subject,Tidy up", title, ",") } \
		/^[a-z-]+:.*## / { g = $$2; sub(/: .*/, "", g); sub(/^[^:]*: /, "", $$2); said[g] = said[g] sprintf("  make %-20s %s\n", $$1, $$2) } \
		END { for (i = 1; i <= n; i++) printf "\n%s\n%s", title[i], said[order[i]] }' $(MAKEFILE_LIST)

.PHONY: build
build: bin/islet budget ## try: build bin/islet: static, stripped, with the shim embedded; fails beyond the size budget

.PHONY: bin/islet
bin/islet: shim
	GOARCH=$(GOARCH) $(GO_BUILD) -o $@ .

# The shim depends only on Go code. The Go build cache makes building an unchanged
# one cheap, and packing it gives the same bytes again.
.PHONY: shim
shim:
	@mkdir -p $(CACHE)/shim
	@rm -f $(filter-out $(SHIM),$(wildcard $(SHIM_DIR)/*.zst)) # the binary embeds every file in this folder
	GOARCH=$(GOARCH) GOARM=7 $(GO_BUILD) -o $(CACHE)/shim/islet-shim-$(GOARCH) ./runtime/shim/cmd
	GOARCH= go run ./runtime/shim/pack $(CACHE)/shim/islet-shim-$(GOARCH) $(SHIM)

# A plain go command with these flags uses the build cache of make.
.PHONY: goflags
goflags:
	@printf '%s\n' "$$GOFLAGS"

.PHONY: size
size: bin/islet budget ## measure: print the size of bin/islet by module and by feature
	GOARCH=$(GOARCH) go build -trimpath -buildvcs=false -tags grpcnotrace -ldflags '-X main.version=$(VERSION)' -o $(CACHE)/islet.symbols .
	GOARCH= go run ./packaging/inspect size $(CACHE)/islet.symbols
	GOARCH= go run ./packaging/inspect features $(CACHE)/islet.symbols .

# These are the cross compilers for other architectures.
OCI_CROSS = $(if $(filter-out $(shell go env GOHOSTARCH),$(GOARCH)),oci-cross)
.PHONY: oci
oci: ## ship: build the OCI runtime that islet ships: crun, static, from the distribution's source packages
	@packaging/deps.sh oci $(OCI_CROSS)
	@packaging/oci/build.sh $(GOARCH)

.PHONY: budget
budget:
	@mb=$$(( ($$(stat -c %s bin/islet) + 999999) / 1000000 )); \
	echo "bin/islet: $$mb MB (budget $(BUDGET_MB) MB)"; [ $$mb -le $(BUDGET_MB) ]

.PHONY: deps
deps: # install the missing packages for running and testing (Debian)
	@packaging/deps.sh $(DEPS)

.PHONY: run
run: ## try: build and start a node with demo pods; nothing is installed (root needed)
	@packaging/demo/run.sh $(GOARCH)

.PHONY: stop
stop: ## try: stop the node of `make run` and remove its files (root needed)
	@packaging/demo/node.sh stop

.PHONY: demo-image
demo-image:
	@mkdir -p $(CACHE)/demo
	GOARCH= $(GO_BUILD) -o $(CACHE)/demo/demo ./packaging/demo
	GOARCH= go run ./packaging/mkimage -ref localhost/islet-demo:dev -entrypoint /demo -o $(CACHE)/demo/islet-demo.tar $(CACHE)/demo/demo

# It compiles with the race detector, as test-unit does: a tree of this size is compiled once
# for both. The tests leave vet out, since it is here. GOGC saves a tenth of the compilers' CPU time. The tests
# of the top folder and of internal/config check the whole tree. make test runs them here, and not with the unit tests.
.PHONY: check
check: ## check: formatting, vet, import rules, modules, known vulnerabilities, documents: 2 minutes
	@files=$$(git ls-files '*.go') ; bad=$$(gofmt -l $$files); [ -z "$$bad" ] || { echo "not formatted: $$bad"; exit 1; }
	go mod tidy -diff
	@go run ./packaging/advisories check . ./runtime/shim/cmd
	CGO_ENABLED=1 GOGC=300 go vet $(RACE_FLAGS) ./...
	cd test && go vet ./...
	@$(MAKE) --no-print-directory lint
	CGO_ENABLED=1 go test $(RACE_FLAGS) -vet=off -ldflags=-w -count=1 . ./internal/config
	CGO_ENABLED=1 go test $(RACE_FLAGS) -vet=off -ldflags=-w -count=1 -run '^Test(FleetFiles|RoleVariables|UserData)$$' ./packaging

# The linters are tools of a module of their own, test/lint.
.PHONY: lint
lint: ## check: the house rules on lines, branches, comments and init statements
	@mkdir -p $(CACHE)/lint
	cd test/lint && go vet ./... && go test ./... && go build -o $(CURDIR)/$(CACHE)/lint/ . github.com/mgechev/revive
	$(CACHE)/lint/revive -config test/lint/revive.toml ./...
	$(CACHE)/lint/lint .

# Advisories are downloaded as a Go module, so that every machine that can build can take a snapshot.
VULNDB := golang.org/x/vulndb
.PHONY: advisories
advisories: ## ship: take a new snapshot of Go's vulnerability database, which `make check` and `make release` use
	@set -- $$(go mod download -json $(VULNDB)@latest | awk -F '"' '$$2 == "Version" || $$2 == "Dir" { print $$4 }') && \
	go run ./packaging/advisories snapshot "$$1" "$$2/data/osv"

# This is the program of an earlier commit. Updates from it to the present program and back have to work. If the
# history does not contain it, these tests are skipped.
OLD := 9457e60bad31
OLD_PROGRAM = $(CURDIR)/$(CACHE)/old/$(OLD)/islet
.PHONY: old
old:
	@test/old.sh $(OLD) $(OLD_PROGRAM)

.PHONY: test-versions
test-versions: build old ## one subject: update a node with pods from an earlier commit (OLD) to this one and back (root needed)
	@packaging/deps.sh run test
	cd test && ISLET_OLD=$(OLD_PROGRAM) ISLET_BIN=$(CURDIR)/bin/islet go test -count=1 -v -timeout 10m -run TestVersions ./node

SKOPEO = $(CURDIR)/$(CACHE)/skopeo
.PHONY: skopeo
skopeo:
	@packaging/deps.sh skopeo
	@test/skopeo.sh $(SKOPEO)

.PHONY: test-skopeo
test-skopeo: skopeo ## one subject: copy a bundle with skopeo through Docker's registry
	ISLET_SKOPEO=$(SKOPEO) go test -count=1 -v -run TestSkopeo ./agent/cli/bundle

BROWSER = $$(command -v chromium-headless-shell || command -v chromium)
PROMETHEUS = $(CURDIR)/$(CACHE)/prometheus

# Tests that need virtual machines, packages, other programs or many repetitions are in test-long.
.PHONY: test
test: ## check: what CI runs, 25 minutes on two cores and 12 with warm caches; prints the seconds of each stage (root needed)
	@test/stage.sh begin
	@test/stage.sh dependencies packaging/deps.sh run test
	@test/stage.sh build $(MAKE) build demo-image
	@code=0; test/stage.sh lanes lane-computing lane-waiting || code=$$?; test/stage.sh end || code=$$?; exit $$code

# The lanes of make test run at the same time. Compilers and unit tests take the time that the tests of nodes and clusters
# leave. The control plane is built first, because the tests of clusters wait for it.
.PHONY: lane-computing lane-waiting
lane-computing:
	@nice test/stage.sh control-plane test/cluster/build.sh
	@nice test/stage.sh check $(MAKE) check
	@nice test/stage.sh unit $(MAKE) test-unit TESTED='github.com/islet-edge/islet(/internal/config)?'
lane-waiting:
	@test/stage.sh node $(MAKE) test-node
	@nice test/stage.sh control-plane-wait test/cluster/build.sh
	@test/stage.sh cluster $(MAKE) cluster

# These are the stages of make test and make test-long. They use the results of earlier stages. The contract of
# container runtimes mostly waits, so it starts first and runs at the same time as packages that compute.
.PHONY: test-unit test-packages test-programs test-node test-installed test-containerd test-migrated
test-unit:
	CGO_ENABLED=1 go test $(RACE_FLAGS) -vet=off -ldflags=-w -p 4 -timeout $(or $(UNIT_TIMEOUT),20m) \
		./runtime/ctrd $$(go list ./... | grep -vxE '$(TESTED)')
test-packages:
	cd packaging/packages && go vet ./... && ISLET_DIST_DIR=$(CURDIR)/$(DIST) go test -count=1 ./...
test-programs:
	cd test/prometheus && go vet ./... && go test -vet=off -ldflags=-w -count=1 ./...
	test/remote/programs.sh >/dev/null
test-node:
	cd test && CGO_ENABLED=$(if $(RACE),1,0) ISLET_OLD=$$(ls $(OLD_PROGRAM) 2>/dev/null) ISLET_PROMETHEUS=$(wildcard $(PROMETHEUS)) ISLET_BIN=$(CURDIR)/bin/islet ISLET_DIST=$(wildcard $(CURDIR)/$(DIST).tar.gz) \
		go test $(RACE) -vet=off -count=1 -parallel 6 -timeout $(or $(NODE_TIMEOUT),20m) $$(go list ./... | grep -v -e /vm -e /system -e /remote -e /migrate -e /fleet)
test-installed:
	$(ON_PACKAGES) go test -count=1 -timeout 20m ./system
test-migrated:
	cd test && ISLET_KUBELET=$$(migrate/programs.sh) ISLET_DIST=$(CURDIR)/$(DIST).tar.gz go test -count=1 -timeout 20m ./migrate
test-containerd:
	cd test && ISLET_CONTAINERD=$(CURDIR)/$(CACHE)/containerd ISLET_BIN=$(CURDIR)/bin/islet go test -count=1 -timeout 20m ./remote

.PHONY: test-cluster
test-cluster: build ## check: the end-to-end tests with a real control plane, built from its Go modules: 15 minutes (root needed)
	@packaging/deps.sh run test
	test/cluster/build.sh
	$(MAKE) vet-cluster cluster

# Vet of test/cluster checks the types of Kubernetes' packages again, for minutes with a cold cache. So it is in
# test-cluster and test-long, and not in make test.
.PHONY: vet-cluster cluster
vet-cluster:
	cd test/cluster && go vet ./...
cluster:
	cd test/csidriver && go vet ./... && go test -count=1 ./...
	cd test/cluster && ISLET_CONTAINERD=$(wildcard $(CURDIR)/$(CACHE)/containerd) ISLET_PROMETHEUS=$(wildcard $(PROMETHEUS)) ISLET_DIST=$(CLUSTER_DIST) ISLET_BIN=$(CURDIR)/bin/islet go test -vet=off -count=1 -parallel 6 -timeout 30m ./...

.PHONY: test-long
test-long: ## check: all tests in their long forms, in virtual machines and with other programs: 2 to 3 hours on two cores (root needed)
	@test/stage.sh begin
	@test/stage.sh dependencies packaging/deps.sh run test vm oci packages system page
	@test/stage.sh build $(MAKE) build demo-image skopeo
	@test/stage.sh packages $(MAKE) packages-two test-packages
	@code=0; test/stage.sh lanes long-computing long-waiting || code=$$?; test/stage.sh end || code=$$?; exit $$code

.PHONY: long-computing long-waiting
long-computing:
	@nice test/stage.sh check $(MAKE) check
	@nice test/stage.sh unit env ISLET_TEST_LONG=1 ISLET_BROWSER=$(BROWSER) ISLET_SKOPEO=$(SKOPEO) $(MAKE) test-unit UNRACED= UNIT_TIMEOUT=90m
	@test/stage.sh machines $(MAKE) test-machines
	@test/stage.sh migrate $(MAKE) test-migrated
long-waiting:
	@test/stage.sh control-plane test/cluster/build.sh
	@test/stage.sh programs $(MAKE) prometheus old mac test-programs
	@test/stage.sh fleet $(MAKE) test-fleet
	@test/stage.sh node env ISLET_TEST_LONG=1 $(MAKE) test-node RACE=-race NODE_TIMEOUT=90m
	@test/stage.sh system $(MAKE) test-installed
	@test/stage.sh remote $(MAKE) test-containerd
	@test/stage.sh cluster env ISLET_TEST_LONG=1 $(MAKE) vet-cluster cluster CLUSTER_DIST=$(CURDIR)/$(DIST).tar.gz

# test-long runs these in virtual machines with this machine's architecture; test-vm has more.
.PHONY: test-machines
test-machines:
	$(ON_PACKAGES) go test -count=1 -timeout 90m ./vm

SOAK ?= 20m
.PHONY: soak
soak: build ## measure: run a node for SOAK (20m) and check that its memory and files do not grow; results in .cache/soak (root needed)
	@packaging/deps.sh run test
	test/cluster/build.sh
	@mkdir -p $(CACHE)/soak
	cd test/cluster && ISLET_SOAK=$(SOAK) ISLET_SOAK_DIR=$(CURDIR)/$(CACHE)/soak ISLET_BIN=$(CURDIR)/bin/islet go test -v -count=1 -timeout 0 -run TestSoak ./soak

TIME ?= 30s
.PHONY: fuzz
fuzz: shim ## check: run every fuzzer for TIME (30s), one after another; FUZZ selects by name
	test/fuzz.sh $(TIME) '$(or $(FUZZ),.)'

.PHONY: test-page
test-page: ## one subject: the status page in a real browser; screenshots in .cache/page
	@packaging/deps.sh page
	@mkdir -p $(CACHE)/page
	ISLET_BROWSER=$(BROWSER) ISLET_PAGE_SHOTS=$(CURDIR)/$(CACHE)/page go test -count=1 -v -run TestBrowser ./agent/kubelet/page

.PHONY: prometheus
prometheus:
	@echo 'building the parts of Prometheus from its Go module (minutes without a build cache)'
	@cd test/prometheus && go build -o $(PROMETHEUS) .

.PHONY: test-prometheus
test-prometheus: build ## one subject: a real Prometheus scrapes nodes and evaluates rules made for a kubelet (root needed)
	@packaging/deps.sh run test
	$(MAKE) prometheus
	cd test/prometheus && go test -vet=off -ldflags=-w -count=1 ./...
	cd test && ISLET_PROMETHEUS=$(PROMETHEUS) ISLET_BIN=$(CURDIR)/bin/islet go test -count=1 -run TestPrometheus ./node -v
	test/cluster/build.sh >/dev/null
	cd test/cluster && ISLET_PROMETHEUS=$(PROMETHEUS) ISLET_BIN=$(CURDIR)/bin/islet go test -v -count=1 -run 'TestPrometheus$$' ./node

.PHONY: test-metrics-server
test-metrics-server: build ## one subject: metrics-server on a node: kubectl top and an autoscaler (root needed)
	@packaging/deps.sh run test
	test/cluster/build.sh >/dev/null
	test/metricsserver/build.sh >/dev/null
	cd test/cluster && ISLET_METRICS_SERVER=$(CURDIR)/$(CACHE)/metricsserver ISLET_BIN=$(CURDIR)/bin/islet go test -v -count=1 -timeout 20m -run TestMetricsServer ./node

.PHONY: critest
critest: build ## suites: the CRI validation suite and crictl against the CRI socket (root needed)
	@packaging/deps.sh run test critest
	test/critest/build.sh >/dev/null
	cd test && ISLET_CRITEST=$(CURDIR)/$(CACHE)/critest ISLET_BIN=$(CURDIR)/bin/islet go test -v -count=1 -timeout 30m ./critest

# Both can run in slices: ISLET_CONFORMANCE_SLICE=7 runs for that many minutes the specs that have
# no result yet in .cache/conformance/{conformance,node}.txt. ISLET_CONFORMANCE_FOCUS, _SKIP and
# _PROCS select specs (docs/conformance.md).
.PHONY: conformance
conformance: build ## suites: Kubernetes' end-to-end suite against two nodes: 20 to 30 minutes (root needed)
	@packaging/deps.sh run test conformance
	test/cluster/build.sh >/dev/null
	test/cluster/conformance/build.sh >/dev/null
	cd test/cluster && ISLET_CONFORMANCE=$(CURDIR)/$(CACHE)/conformance ISLET_BIN=$(CURDIR)/bin/islet go test -v -count=1 -timeout 240m -run 'TestSuite$$' ./conformance

.PHONY: conformance-storage
conformance-storage: build ## suites: Kubernetes' specs of CSI drivers and dynamic resources against two nodes: 20 to 30 minutes (root needed)
	@packaging/deps.sh run test conformance
	test/cluster/build.sh >/dev/null
	test/cluster/conformance/build.sh drivers >/dev/null
	cd test/cluster && ISLET_CONFORMANCE=$(CURDIR)/$(CACHE)/conformance ISLET_BIN=$(CURDIR)/bin/islet go test -v -count=1 -timeout 240m -run 'TestStorageSuite$$' ./conformance

.PHONY: conformance-node
conformance-node: build ## suites: Kubernetes' node suite on a node: 15 to 30 minutes (root needed)
	@packaging/deps.sh run test conformance
	test/cluster/build.sh >/dev/null
	test/cluster/conformance/build.sh >/dev/null
	cd test/cluster && ISLET_CONFORMANCE=$(CURDIR)/$(CACHE)/conformance ISLET_BIN=$(CURDIR)/bin/islet go test -v -count=1 -timeout 240m -run 'TestNodeSuite$$' ./conformance

.PHONY: test-remote
test-remote: build ## one subject: nodes whose containers run in containerd: Debian's, and a current one (root needed)
	@packaging/deps.sh run test
	test/remote/programs.sh >/dev/null
	ISLET_CONTAINERD=$(CURDIR)/$(CACHE)/containerd ISLET_BIN=$(CURDIR)/bin/islet go test -count=1 -timeout 20m -run TestContainerdSuite ./runtime/remote
	cd test && ISLET_CONTAINERD=$(CURDIR)/$(CACHE)/containerd ISLET_BIN=$(CURDIR)/bin/islet go test -count=1 -timeout 20m ./remote
	test/cluster/build.sh >/dev/null
	cd test/cluster && ISLET_CONTAINERD=$(CURDIR)/$(CACHE)/containerd ISLET_BIN=$(CURDIR)/bin/islet go test -count=1 -timeout 20m -run TestRemote ./node

.PHONY: test-migrate
test-migrate: ## one subject: Debian's podman, and a kubelet with Debian's containerd, to islet and back: 10 minutes (root needed)
	@packaging/deps.sh run test system
	$(MAKE) dist-one
	$(MAKE) test-migrated

.PHONY: test-vm
test-vm: ## one subject: virtual machines: 20 power cuts, kubeadm, hardware, memory, packages, OpenRC, boards: 2 hours (root needed)
	@packaging/deps.sh run test vm vm-arm packages
	for a in arm64 arm; do $(MAKE) dist-one packages-one GOARCH=$$a || exit 1; done
	$(MAKE) packages-two
	$(ON_PACKAGES) ISLET_VM_ARCHITECTURES=arm64,armhf ISLET_VM_CUTS=20 ISLET_VM_HARDWARE=1 ISLET_VM_MEMORY=1 go test -v -count=1 -timeout 180m ./vm
	$(MAKE) test-kubeadm CUTS=20

# check_cuts fails, before minutes of building, if a variable is not a number.
check_cuts = @case "$($1)" in ""|*[!0-9]*) echo "$1=$($1) is not a number of power cuts, such as $1=20" >&2; exit 2 ;; esac
CUTS ?= 3
.PHONY: test-kubeadm
test-kubeadm: ## one subject: kubeadm in virtual machines: join, reboot, upgrade, CUTS (3) power cuts, 1970, reset; init and join of two: 40 minutes (root needed)
	$(call check_cuts,CUTS)
	@packaging/deps.sh run test vm
	$(MAKE) build packages-two
	test/cluster/build.sh >/dev/null
	cd test/cluster && ISLET_VM_KUBEADM=1 ISLET_VM_CUTS=$(CUTS) ISLET_PACKAGES=$(CURDIR)/dist/packages ISLET_PACKAGES_NEXT=$(CURDIR)/dist/packages-next ISLET_BIN=$(CURDIR)/bin/islet go test -v -count=1 -timeout 180m -run TestKubeadmBoot ./node

STATES ?= 400
.PHONY: test-power
test-power: ## one subject: STATES (400) power cuts each while a bundle, a version of islet and pods are applied: 1 hour (root needed)
	$(call check_cuts,STATES)
	@packaging/deps.sh run test vm
	$(MAKE) build dist-one
	cd test && ISLET_VM_STATES=$(STATES) ISLET_DIST=$(CURDIR)/$(DIST).tar.gz go test -v -count=1 -timeout 180m -parallel 2 -run 'TestBundleCuts|Writes$$' ./vm

# The program for the office has the commands that need no agent. It was never run on a Mac.
.PHONY: mac
mac: ## ship: build the commands that make, sign and check bundles and manifests, for macOS: bin/islet-darwin-*
	for a in arm64 amd64; do GOOS=darwin GOARCH=$$a $(GO_BUILD) -o bin/islet-darwin-$$a . || exit 1; done

.PHONY: test-memory
test-memory: ## one subject: memory limits of cgroup v2, and machines of 256 and 128 MiB: 15 minutes (root needed)
	@packaging/deps.sh run test vm
	$(MAKE) build dist-one
	cd test && ISLET_VM_MEMORY=1 ISLET_DIST=$(CURDIR)/$(DIST).tar.gz go test -v -count=1 -timeout 90m -run 'TestMemoryCgroups|TestSmall' ./vm

# The packages of this version and of the next one.
.PHONY: packages-two
packages-two: dist-one packages-one
	@mkdir -p dist/packages-next
	@find dist/packages-next -type f ! -name '*[_-]$(VERSION)+next-1[_.]*' -delete
	cd packaging/packages && GOARCH= GOFLAGS= go run . make -version $(VERSION)+next -arch $(GOARCH) -from $(CURDIR)/$(DIST) -to $(CURDIR)/dist/packages-next

ON_PACKAGES = cd test && ISLET_PACKAGES=$(CURDIR)/dist/packages ISLET_PACKAGES_NEXT=$(CURDIR)/dist/packages-next ISLET_DIST=$(CURDIR)/$(DIST).tar.gz
.PHONY: test-system
test-system: ## one subject: packages installed, upgraded and removed under systemd and OpenRC (root needed)
	@packaging/deps.sh test system packages
	$(MAKE) packages-two
	$(ON_PACKAGES) go test -v -count=1 -timeout 20m ./system

REPRODUCED ?= amd64 arm64
.PHONY: test-reproducible
test-reproducible: ## one subject: build archives and packages of REPRODUCED (amd64 arm64) twice and compare the bytes: 15 minutes
	@packaging/deps.sh test oci oci-cross
	test/reproducible.sh $(REPRODUCED)

.PHONY: test-openrc
test-openrc: ## one subject: a virtual machine with OpenRC as init: packages, reboot, kill, upgrade, power cut, purge: 5 minutes (root needed)
	@packaging/deps.sh run test vm
	$(MAKE) packages-two
	$(ON_PACKAGES) go test -v -count=1 -timeout 30m -run 'TestOpenRC$$' ./vm

.PHONY: test-fleet test-ansible test-cloud-init test-container
test-fleet: FLEET_TESTS = .
test-fleet: ## one subject: the Ansible role, the user-data of cloud-init and the container image, with Debian's programs: 20 minutes (root needed)
test-ansible: FLEET_TESTS = TestAnsible
test-ansible: # only the Ansible role
test-cloud-init: FLEET_TESTS = TestCloudInit
test-cloud-init: # only the user-data of cloud-init
test-container: FLEET_TESTS = TestContainer
test-container: # only the container image
test-fleet test-ansible test-cloud-init test-container:
	@packaging/deps.sh test system
	$(MAKE) dist-one packages-one container
	$(ON_PACKAGES) ISLET_IMAGE=$(CURDIR)/$(IMAGE) go test -v -count=1 -timeout 40m -run '$(FLEET_TESTS)' ./fleet

.PHONY: bench-packages
bench-packages: ## measure: measure an installation and an upgrade of the packages under systemd (root needed)
	@packaging/deps.sh test system
	$(MAKE) packages-two
	$(ON_PACKAGES) ISLET_BENCH=1 go test -v -count=1 -timeout 20m -run TestFigures ./system

.PHONY: test-architectures
test-architectures: ## one subject: the packages on emulated boards with the processors of a Raspberry Pi 4 and 2: 30 minutes (root needed)
	@packaging/deps.sh run test vm vm-arm
	for a in arm64 arm; do $(MAKE) dist-one packages-one GOARCH=$$a || exit 1; done
	cd test && ISLET_PACKAGES=$(CURDIR)/dist/packages ISLET_VM_ARCHITECTURES=arm64,armhf go test -v -count=1 -timeout 90m -run TestArchitectures ./vm

.PHONY: test-hardware
test-hardware: ## one subject: USB, cameras, I2C, disks and other devices in a virtual machine: 15 minutes (root needed)
	@packaging/deps.sh run test vm
	$(MAKE) build dist-one
	cd test && ISLET_VM_HARDWARE=1 ISLET_DIST=$(CURDIR)/$(DIST).tar.gz go test -v -count=1 -timeout 30m -run TestHardware ./vm

# The installed program is measured, with the OCI runtime that is shipped.
INSTALLED := $(CURDIR)/$(CACHE)/installed
.PHONY: installed
installed: build
	@packaging/deps.sh oci
	@mkdir -p $(INSTALLED)/bin $(INSTALLED)/lib/islet
	@oci=$$(packaging/oci/build.sh $(GOARCH)) && install "$$oci" $(INSTALLED)/lib/islet/
	@install bin/islet $(INSTALLED)/bin/

.PHONY: bench
bench: installed ## measure: measure memory, CPU, latency, disk, wire and requests: 55 minutes (root needed)
	@packaging/deps.sh run
	ISLET_FLEET=$(FLEET) go test -count=1 -timeout 60m -run TestReturnOfAFleet -v ./edge/link
	cd test && ISLET_BENCH=1 ISLET_BIN=$(INSTALLED)/bin/islet go test -count=1 -timeout 60m -run 'TestFigures|TestIdle|TestHeap|TestScrape|TestPressure|TestStick' ./bench -v
	test/cluster/build.sh
	cd test/cluster && ISLET_BENCH=1 ISLET_BIN=$(INSTALLED)/bin/islet go test -count=1 -timeout 90m -run 'TestFigures|TestFleet|TestWire|TestControlPlane' ./bench -v
	cd test/cluster && ISLET_BENCH=1 ISLET_BIN=$(INSTALLED)/bin/islet go test -count=1 -timeout 20m -run TestThirtyCSI ./node -v
	cd test && ISLET_BENCH=1 ISLET_BIN=$(INSTALLED)/bin/islet go test -count=1 -timeout 20m -run TestFloor ./bench -v

.PHONY: dist
dist: ## ship: build archives for amd64, arm64, armv7 and riscv64 in dist/
	@for a in $(DIST_ARCHS); do $(MAKE) --no-print-directory dist-one GOARCH=$$a; done
	@ls -l dist/*.tar.gz

.PHONY: dist-one
dist-one: shim
	@packaging/deps.sh oci $(OCI_CROSS)
	@rm -rf $(DIST) && mkdir -p $(DIST)/lib/islet $(DIST)/doc
	GOARCH=$(GOARCH) GOARM=7 $(GO_BUILD) -o $(DIST)/islet .
	oci=$$(packaging/oci/build.sh $(GOARCH)) && cp "$$oci" $(DIST)/lib/islet/ && for l in $$(dirname "$$oci")/licenses/*; do cp "$$l" $(DIST)/doc/LICENSE.$${l##*/}; done && \
	GOARCH= GOFLAGS= go run ./packaging/inspect sbom $(DIST)/islet $(VERSION) $$(dirname "$$oci")/parts >$(DIST)/doc/islet.spdx.json
	GOARCH= GOFLAGS= go run ./packaging/inspect notices $(DIST)/islet $(CACHE)/shim/islet-shim-$(GOARCH) | gzip -9n >$(DIST)/doc/NOTICES.gz
	@cp -r packaging/systemd packaging/openrc packaging/kubeadm packaging/default packaging/files packaging/install.sh LICENSE $(DIST)/
	@echo $(SOURCE_DATE_EPOCH) >$(DIST)/built
	@packaging/docs.sh $(DIST)/doc
	@cp packaging/oci/sources $(DIST)/doc/
	@cp LICENSE $(DIST)/doc/LICENSE.islet
	$(GO_HERE) man $(DIST)/man
	@mkdir -p $(DIST)/completion $(DIST)/demo
	GOARCH=$(GOARCH) GOARM=7 $(GO_BUILD) -o $(CACHE)/demo/$(GOARCH)/demo ./packaging/demo
	GOARCH= GOARM= go run ./packaging/mkimage -arch $(GOARCH) -ref localhost/islet-demo:dev -entrypoint /demo -o $(DIST)/demo/islet-demo.tar $(CACHE)/demo/$(GOARCH)/demo
	@cp packaging/demo/manifests/web.yaml $(DIST)/demo/
	@for shell in bash zsh fish; do $(GO_HERE) completion $$shell >$(DIST)/completion/$$shell; done
	@tar -C dist --sort=name --owner=0 --group=0 --numeric-owner --mtime=@$(SOURCE_DATE_EPOCH) --mode=u+rw,go=rX -cf - $(notdir $(DIST)) | gzip -9n >$(DIST).tar.gz

.PHONY: packages
packages: ## ship: build deb and rpm packages for amd64, arm64, armhf and riscv64 in dist/packages
	@for a in $(DIST_ARCHS); do $(MAKE) --no-print-directory dist-one packages-one GOARCH=$$a; done
	@ls -l dist/packages

# This builds the packages of one architecture from the result of dist-one. It removes those of other versions.
.PHONY: packages-one
packages-one:
	@mkdir -p dist/packages
	@find dist/packages -type f ! -name '*[_-]$(VERSION)-1[_.]*' -delete
	cd packaging/packages && GOARCH= GOFLAGS= go run . make -version $(VERSION) -arch $(GOARCH) -from $(CURDIR)/$(DIST) -to $(CURDIR)/dist/packages

# Its files are those of dist-one. The licences of what is in it lie in /doc.
IMAGE := dist/islet-$(VERSION)-image-$(GOARCH).tar
.PHONY: container
container: dist-one ## ship: build a container image to try islet in, from the archive's files: dist/islet-VERSION-image-ARCH.tar
	GOARCH= GOARM= go run ./packaging/mkimage -arch $(GOARCH) -ref localhost/islet:$(VERSION) -entrypoint /islet \
		-cmd 'agent --pod-manifest-path=/etc/kubernetes/manifests --seccomp-default' -o $(IMAGE) $(DIST)/islet \
		$(DIST)/lib/islet/crun=/lib/islet/crun $(DIST)/demo/web.yaml=/etc/kubernetes/manifests/web.yaml \
		$(DIST)/demo/islet-demo.tar=/var/lib/islet/images/islet-demo.tar \
		$$(for f in $(DIST)/doc/LICENSE.* $(DIST)/doc/NOTICES.gz $(DIST)/doc/islet.spdx.json; do echo "$$f=/doc/$${f##*/}"; done)

.PHONY: repo
repo: packages ## ship: build a signed repository for apt and dnf in dist/repo (ISLET_SIGNING_KEY: gpg key; URL: the repository's address)
	@packaging/deps.sh packages
	packaging/repo.sh dist/packages dist/repo

.PHONY: release
release: ## ship: gather a release in dist/release, signed by ISLET_RELEASE_KEYS (packaging/sign) and ISLET_SIGNING_KEY (gpg)
	@packaging/deps.sh oci oci-cross
	packaging/release.sh $(VERSION)
	@$(MAKE) --no-print-directory packages
	packaging/release.sh $(VERSION) dist dist/release

.PHONY: picture
picture: ## ship: record the README's picture of a terminal on the node of make run, and the status page's (root needed)
	GOARCH= packaging/picture/record.sh bin/islet docs/pictures/terminal.svg
	$(MAKE) test-page
	for p in overview-1400 overview-360 network-360 pod-1400; do \
		cp $(CACHE)/page/$$p-light.png docs/pictures/page-$$p.png; done

.PHONY: clean
clean: ## tidy: remove everything that was built
	rm -rf bin dist $(CACHE) $(SHIM_DIR)/*.zst
