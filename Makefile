# Every target works in a bare checkout on a machine with Go, make and git; what else is needed is built or installed by
# the target, or it says what to install.

SHELL      := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

NAME    := kvm-operator
PROJECT := github.com/kvm-operator/kvm-operator
# A release is a commit with a tag vX.Y.Z; other builds keep the version in pkg/project.
VERSION ?= $(shell git describe --tags --exact-match --match 'v*' 2>/dev/null | sed 's/^v//')
LDFLAGS := -s -w $(if $(VERSION),-X $(PROJECT)/pkg/project.version=$(VERSION))
IMAGE   ?= docker.io/kvm-operator/$(NAME):$(or $(VERSION),$(shell sed -n 's/^var version = "\(.*\)"/\1/p' pkg/project/project.go))
RUNNER_IMAGE ?= docker.io/kvm-operator/kvm-operator-runner:$(lastword $(subst :, ,$(IMAGE)))
VM_RUNNER_IMAGE ?= docker.io/kvm-operator/kvm-operator-vm-runner:$(lastword $(subst :, ,$(IMAGE)))
# What docker-build, docker-build-runtime and deploy call the images.
IMG         ?= $(IMAGE)
RUNTIME_IMG ?= docker.io/kvm-operator/kvm-operator-smolvm-runtime:$(lastword $(subst :, ,$(IMG)))
CONTAINER_TOOL ?= docker

TOOLS   := $(CURDIR)/.tools
# Two modules are left out. What Vault's needs is as much as all the others together, and that of KubeVirt's programs has
# a part that only its build makes.
MODULES := $(filter-out integration/tools/vault integration/images/kubevirt/programs,. $(patsubst %/go.mod,%,$(wildcard integration/*/*/go.mod integration/*/*/*/go.mod)))
STARTED := $(shell date +%s)
CRDS    := helm/$(NAME)/crds
# Definitions of SmolVMs, which the chart installs where smolvm.enabled is true. Helm installs all that is in crds of a
# chart, so these are outside.
SMOLVM_CRDS := helm/$(NAME)/files/smolvm
# Definitions of Machines, which the chart of kubevirt-operator installs.
MACHINE_CRDS := helm/kubevirt-operator/crds
# Its manifests for kubectl, which are rendered from the chart.
MANIFESTS := crd rbac manager prometheus network-policy
CHART   := helm/$(NAME)/Chart.yaml
# controller-gen has no marker for values of maps that may be null: a type with this format stands for them.
nullable := sed -i 's/^\( *\)format: nullable$$/\1nullable: true/'

# Several management clusters at a time are fast; more of them than cores make timeouts a matter of luck.
TEST_PACKAGES_AT_ONCE ?= 2
TEST_TIMEOUT          ?= 60m
E2E_TIMEOUT           ?= 2h
HA_TIMEOUT            ?= 2h
BENCH_TIMEOUT         ?= 2h
SOAK                  ?= 1h
RUN                   ?= .
CHAOS_FOR             ?= 0s
SEED                  ?= $(shell date +%s)
# Packages whose tests run virtual machines, or KubeVirt beside a management cluster, and keep all cores busy.
WITH_MACHINES := /(integration/.*/(contract|guests|kubevirt|live|machines?|microvm|realcluster|runnerimage)|pkg/vm/(guestnet|qemu))$$
export KUBEBUILDER_ASSETS := $(TOOLS)
# Says how long each suite took beside its budget; a failure of what it reads stays one.
# mawk reads ahead by default, and would print nothing for many minutes.
suites := awk $(shell awk -W version 2>/dev/null | grep -q ^mawk && echo -W interactive) -v budgets=integration/budgets -f integration/suites.awk

go_build = CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o

# The demo and dev say it before anything is compiled or built.
demo_takes = ==> without KVM this takes twenty to forty minutes on two cores that have nothing else to do, and more on others or while tools are built

##@ Try it

.PHONY: demo demo-vm demo-smolvm demo-machines demo-down dev
demo: ## Start a management cluster, the operator and a workload cluster of virtual machines on this machine, as root. Ctrl-C stops it. Without a terminal it stops when the workload cluster serves, unless KEEP=1. SMOLVM=1: the hosts run SmolVMs, too
	@echo "$(demo_takes)"
	@integration/progress.sh "demo: compiling" go build -o /dev/null ./integration/demo
	@go run ./integration/demo check
	@$(MAKE) machine-tools
	@go run ./integration/demo up $(if $(KEEP),-exit=false) $(if $(SMOLVM),-smolvm)

dev: ## Like demo, and until Ctrl-C: build and replace the operator whenever its sources change
	@echo "$(demo_takes)"
	@integration/progress.sh "dev: compiling" go build -o /dev/null ./integration/demo
	@go run ./integration/demo check
	@$(MAKE) machine-tools
	@go run ./integration/demo up -develop

demo-vm: ## Start a management cluster, the operator and a VirtualMachine with Debian on this machine, as root. Ctrl-C stops it. Without a terminal it stops when the machine has booted, unless KEEP=1
	@integration/progress.sh "demo: compiling" go build -o /dev/null ./integration/demo
	@go run ./integration/demo check
	@$(MAKE) machine-tools
	@go run ./integration/demo vm $(if $(KEEP),-exit=false)

demo-smolvm: ## Start a microVM from a container image on this machine, without Kubernetes: it serves on a port, survives its server, grows and goes. KEEP=1 keeps it until Ctrl-C
	@integration/build.sh .tools programs
	@integration/images/guestimage/build.sh .tools/guest micro
	@mkdir -p bin
	@integration/progress.sh "demo: compiling" go build -trimpath -o bin/smolvm ./smolvm
	@go run ./integration/demo/smolvm -smolvm=bin/smolvm $(if $(KEEP),-exit=false)

demo-machines: ## Start Kubernetes with KubeVirt's control plane and simulated nodes, and the operator for Machines: see Machines made, stopped, started and deleted. No guest boots. Without a terminal it ends after that, unless KEEP=1
	@integration/build.sh .tools kubeall kwok helm kubevirt
	@mkdir -p bin
	@integration/progress.sh "demo: compiling the operator" env $(go_build) bin/$(NAME) .
	@integration/progress.sh "demo: compiling" go build -o /dev/null ./integration/demo
	@go run ./integration/demo machines $(if $(KEEP),-exit=false)

demo-down: ## Stop a demo that was left behind
	@go run ./integration/demo down

##@ Test

.PHONY: test-one golden hooks
test-one: ## Run one suite, such as SUITE=behaviour, or those of its tests that RUN matches, such as RUN=TestPause. ARGS are passed on
	@test -n "$(SUITE)" || { echo "error: which suite? make test-one SUITE=behaviour RUN=TestPause, of: $$(ls -d integration/suites/*/ | xargs -n1 basename | paste -sd' ')"; exit 1; }
	@$(MAKE) --no-print-directory tools
	@go test -v -count=1 -timeout $(TEST_TIMEOUT) -run '$(RUN)' ./integration/suites/$(SUITE) $(ARGS)

golden: ## Rewrite all golden files. Review the difference before you commit it
	@integration/build.sh .tools kubeall kwok helm
	@UPDATE=1 go test -count=1 -run TestRulesFollowFromTheChains ./service
	@UPDATE=1 go test -short -count=1 $$(grep -rl 'Getenv("UPDATE")' --include=*_test.go layers_test.go cmd pkg service integration/suites/chart integration/suites/machineschart integration/demo | xargs -n1 dirname | sort -u | sed 's|^|./|')
	@UPDATE=1 go test -count=1 -run 'TestLifeOfAClusterIsInTheLog|TestDescribeOfAHealthyCluster' ./integration/suites/behaviour

hooks: ## Make git check commit messages in this checkout
	@git config core.hooksPath .githooks && echo "git checks messages of commits with .githooks/commit-msg"

.PHONY: test states vault vm-faults contract-smolvm chaos-rest courses chaos soak e2e e2e-life e2e-operations e2e-smolvm e2e-upgrade e2e-machines e2e-ha unit race bench bench-machine bench-vm bench-machines bench-smolvm bench-founding lint imports verify verify-generated verify-format verify-modules nancy
test: verify lint tools ## Run everything that fits into 80 minutes: generated files, format, modules, linters, unit and integration tests, then vault, vm-faults, e2e-life, chaos-rest, e2e-smolvm and e2e-operations as time permits. Lists what it skips
	@echo "==> testing: up to $(TEST_PACKAGES_AT_ONCE) packages at a time; the ones with a management cluster take a minute or more each"
	@go test -p $(TEST_PACKAGES_AT_ONCE) -timeout $(TEST_TIMEOUT) $$(go list ./... | grep -vE '$(WITH_MACHINES)|/integration/suites/(e2e|issuer|kubevirtguest)$$') | $(suites)
	@echo "==> testing virtual machines: one package at a time, for each of them keeps all cores busy"
	@go test -p 1 -timeout $(TEST_TIMEOUT) $$(go list ./... | grep -E '$(WITH_MACHINES)') | $(suites)
	@$(MAKE) --no-print-directory states
	@integration/ifthereistime.sh $(STARTED) vault:15 vm-faults:20 e2e-life:50 chaos-rest:25 e2e-smolvm:15 e2e-operations:60

states: ## Check the decisions about etcd, drain, remediation, rollout and Machines in every small state, and print the number of states
	@for package in pkg/cluster/etcd pkg/cluster/drain pkg/cluster/remediation pkg/cluster/rolling pkg/vitistack; do \
		go test -v ./$$package | awk -v package=$$package '/^=== RUN/ {test = $$3} \
			/ (states|situations)/ {sub(".*_test.go:[0-9]*: ", ""); print package " " test ": " $$0} \
			/FAIL|panic:/ {print; failed = 1} END {exit failed}' || exit 1; \
	done

vault: ## Test certificates from a real Vault server. Slow to build; test skips it when time is short
	@integration/build.sh .tools kubeall kwok vault
	@go test -timeout $(TEST_TIMEOUT) ./integration/suites/issuer

vm-faults: tools ## Kill runners, QEMUs, links, the API server and nodes below VirtualMachines with real guests, fill disks, and move a signed guest. test runs the short ones
	@go test -v -timeout $(TEST_TIMEOUT) -run 'TestFault|TestSeed|TestFirmware|TestMachineOutlivesItsPod' ./integration/suites/guests -long

chaos-rest: tools ## Run chaos runs 31 to 500, or as many as start within CHAOS_FOR. test skips it when time is short
	@go test -v -timeout $(BENCH_TIMEOUT) -run TestRunsWithFaults ./integration/suites/chaos -seed=31 -runs=470 -for=$(CHAOS_FOR)

# The former name of chaos-rest.
courses: chaos-rest

chaos: tools ## Run all 500 chaos runs (random changes and injected faults from fixed seeds) and crash the operator at every write of a drain. test runs the first 30, and one crash point in seventeen
	@go test -v -timeout $(BENCH_TIMEOUT) ./integration/suites/chaos -runs=500 -every=1

e2e-smolvm: machine-tools ## Break what is below SmolVMs on a real cluster of two nodes: servers, ports, tokens, sockets, cables, power and disks of nodes, the chart. test skips it when time is short
	@go test -v -timeout $(E2E_TIMEOUT) -run 'TestSmolVM|TestMachineOutlivesItsPod' ./integration/suites/guests -long

contract-smolvm: tools ## Ask this project's server of smolvm's API, and smolvm where SMOLVM_BIN names it, for all that a server must do. test asks for part of it
	@go test -v -timeout $(TEST_TIMEOUT) ./integration/suites/contract -long

soak: tools ## Run chaos runs for SOAK (default 1h) from SEED (default: random)
	@go test -v -timeout 0 -run TestRunsWithFaults ./integration/suites/chaos -runs=0 -for=$(SOAK) -seed=$(SEED)

e2e: e2e-life e2e-operations ## Run e2e-life and e2e-operations: workload clusters of virtual machines on a real management cluster

e2e-life: machine-tools ## Create, use and delete a workload cluster
	@go test -v -timeout $(E2E_TIMEOUT) -run TestLifeOfACluster ./integration/suites/e2e

e2e-operations: machine-tools ## Remove, change, kill, hang and drain workers while the operator is killed repeatedly
	@go test -v -timeout $(E2E_TIMEOUT) -run TestOperations ./integration/suites/e2e

e2e-upgrade: machine-tools next-tools ## Upgrade a master and a worker to the next minor version of Kubernetes
	@go test -v -timeout $(E2E_TIMEOUT) -run TestUpgrade ./integration/suites/e2e

e2e-machines: machine-tools kubevirt-images ## Boot guests of Machines by software emulation, on a real node with KubeVirt, installed by its own operator
	@go test -v -count=1 -timeout $(E2E_TIMEOUT) ./integration/suites/kubevirtguest

e2e-ha: tools ## Restore a snapshot to three masters, kill each of them, and replace one
	@go test -v -timeout $(HA_TIMEOUT) -run TestThreeMastersSurviveTheDeathOfAnyOne ./integration/suites/e2e

unit: ## Run the tests that need neither tools nor a management cluster nor a minute each
	@go test -short $$(go list ./... | grep -vE '/(integration|pkg/apis)/')

race: ## Run unit under the race detector. Needs a C compiler
	@command -v gcc >/dev/null || { echo "error: the race detector needs gcc; install it, on Debian with: apt-get install gcc libc6-dev"; exit 1; }
	@go test -race -short $$(go list ./... | grep -vE '/(integration|pkg/apis)/')

bench: tools ## Run the benchmarks with many clusters. Slow
	@go test -run '^$$' -bench . -benchtime 1x -timeout $(BENCH_TIMEOUT) -v ./integration/suites/scale/... ./integration/suites/living/...

bench-machine: tools ## Compare the runner with bare QEMU. Needs an idle machine
	@go test -run '^$$' -bench . -benchtime 1x -timeout $(BENCH_TIMEOUT) -v ./integration/suites/machine/...

bench-vm: tools ## Compare the runner of a VirtualMachine with bare QEMU, and measure the operator with 1,000 VirtualMachines. Needs an idle machine
	@go test -run TestRunnerOfAVirtualMachine -bench DeclaredOverhead -benchtime 1x -timeout $(BENCH_TIMEOUT) -v ./integration/suites/machine
	@go test -run '^$$' -bench VirtualMachines -benchtime 1x -timeout $(BENCH_TIMEOUT) -v ./integration/suites/scale

bench-machines: tools ## Measure the operator with 100 and 1,000 Machines on KubeVirt's definitions, and compare with a plain client. KubeVirt does not run. Needs an idle machine
	@go test -run '^$$' -bench '^BenchmarkMachines$$' -benchtime 1x -timeout $(BENCH_TIMEOUT) -v ./integration/suites/scale

bench-smolvm: tools ## Compare smolvm on a node with a bare QEMU, and a pull with tar; measure the controller with 10 to 300 SmolVMs on played nodes, and with 100 that nothing happens to. Needs an idle machine
	@go test -run '^$$' -bench . -benchtime 1x -timeout $(BENCH_TIMEOUT) -v ./integration/suites/microvm
	@go test -run '^$$' -bench . -benchtime 1x -timeout $(BENCH_TIMEOUT) -v ./integration/suites/smolvm

bench-founding: tools ## Compare a cluster created by the operator with one created by hand. Needs an idle machine
	@go test -run '^$$' -bench Founding -benchtime 1x -timeout $(BENCH_TIMEOUT) -v ./integration/suites/e2e

lint: $(TOOLS)/golangci-lint ## Run the linters of .golangci.yaml
	@echo "==> linting"
	@$(TOOLS)/golangci-lint run --allow-parallel-runners ./...

imports: $(TOOLS)/golangci-lint ## Format all Go files and sort their imports
	@$(TOOLS)/golangci-lint fmt ./...

verify: verify-generated verify-format verify-modules ## Check generated files, format, vet and modules
	@echo "==> go vet"
	@go vet ./...

verify-generated: $(TOOLS)/controller-gen $(TOOLS)/helm
	@echo "==> generated files"
	@new=$$(mktemp -d); trap 'rm -rf "$$new"' EXIT; \
	$(TOOLS)/controller-gen crd:allowDangerousTypes=true paths=./pkg/apis/... output:crd:artifacts:config="$$new/crds"; \
	$(nullable) "$$new"/crds/*.yaml; \
	mkdir "$$new/smolvm" && mv "$$new"/crds/vm.smolvm.dev_*.yaml "$$new/smolvm"; \
	mkdir "$$new/machines" && mv "$$new"/crds/vitistack.io_*.yaml "$$new/machines"; \
	diff -ru $(CRDS) "$$new/crds" || { echo "error: $(CRDS) is outdated: run make generate"; exit 1; }; \
	diff -ru $(SMOLVM_CRDS) "$$new/smolvm" || { echo "error: $(SMOLVM_CRDS) is outdated: run make generate"; exit 1; }; \
	diff -ru $(MACHINE_CRDS) "$$new/machines" || { echo "error: $(MACHINE_CRDS) is outdated: run make generate"; exit 1; }; \
	HELM=$(TOOLS)/helm config/render.sh "$$new/config"; \
	for folder in $(MANIFESTS); do \
		diff -ru config/$$folder "$$new/config/$$folder" || { echo "error: config/$$folder is outdated: run make generate"; exit 1; }; \
	done; \
	for package in $$(dirname pkg/apis/*/*/zz_generated.deepcopy.go); do \
		mkdir -p "$$new/$$package"; \
		$(TOOLS)/controller-gen object paths=./$$package output:object:dir="$$new/$$package"; \
		diff -u $$package/zz_generated.deepcopy.go "$$new/$$package/zz_generated.deepcopy.go" || { echo "error: $$package is outdated: run make generate"; exit 1; }; \
	done

verify-format:
	@echo "==> gofmt"
	@unformatted=$$(gofmt -l .); \
	[ -z "$$unformatted" ] || { echo "error: run make imports, these are not formatted:"; echo "$$unformatted"; exit 1; }

verify-modules:
	@echo "==> go mod tidy"
	@for module in $(MODULES); do \
		(cd "$$module" && go mod tidy -diff) || { echo "error: run go mod tidy in $$module"; exit 1; }; \
	done

nancy: ## Verify the modules against go.sum, and print how to scan for vulnerabilities
	@go mod verify
	@echo "Known vulnerabilities are looked up online: go run golang.org/x/vuln/cmd/govulncheck@latest ./..."

##@ Build

.PHONY: build build-linux build-linux-arm64 build-darwin build-darwin-arm64 build-windows-amd64 install-program run clean build-docker build-docker-runner docker-build docker-build-runtime
build: ## Build bin/kvm-operator and bin/smolvm for this machine
	@$(go_build) bin/$(NAME) .
	@$(go_build) bin/smolvm ./smolvm

build-linux build-linux-arm64 build-darwin build-darwin-arm64 build-windows-amd64: build-%: ## Build bin/kvm-operator-<os>-<arch>
	@os=$(word 1,$(subst -, ,$*)) arch=$(or $(word 2,$(subst -, ,$*)),amd64); \
	GOOS=$$os GOARCH=$$arch $(go_build) bin/$(NAME)-$$os-$$arch$$([ $$os != windows ] || echo .exe) .

install-program: ## Install kvm-operator into Go's bin directory
	@CGO_ENABLED=0 go install -trimpath -ldflags '$(LDFLAGS)' .

run: ## Run the operator from the checkout against the cluster of ~/.kube/config; ARGS are further arguments
	@go run . daemon --service.kubernetes.kubeconfigpath="$${KUBECONFIG:-$$HOME/.kube/config}" $(ARGS)

clean: ## Stop the demo and remove what was built here; the cache of built tools stays
	@[ ! -d .demo ] || $(MAKE) demo-down
	@rm -rf bin dist .tools cover.out

build-docker-runner: ## Build the container images of node pods and VirtualMachines; RUNNER_IMAGE and VM_RUNNER_IMAGE name them
	@command -v docker >/dev/null || { echo "error: docker is not installed: see https://docs.docker.com/engine/install/"; exit 1; }
	@docker build --platform linux/amd64 --build-arg VERSION=$(VERSION) -f runner/Dockerfile --target runner -t $(RUNNER_IMAGE) .
	@docker build --platform linux/amd64 --build-arg VERSION=$(VERSION) -f runner/Dockerfile --target vm-runner -t $(VM_RUNNER_IMAGE) .

build-docker: ## Build the container image; IMAGE names it
	@command -v docker >/dev/null || { echo "error: docker is not installed: see https://docs.docker.com/engine/install/"; exit 1; }
	@docker build --build-arg VERSION=$(VERSION) -t $(IMAGE) .

# An engine is there if it answers, not only its client.
has_engine = command -v $(CONTAINER_TOOL) >/dev/null && $(CONTAINER_TOOL) info >/dev/null 2>&1

docker-build: ## Build the container image IMG with CONTAINER_TOOL (docker or podman); without an engine, write an OCI archive and say where
	@if $(has_engine); then $(CONTAINER_TOOL) build --build-arg VERSION=$(VERSION) -t $(IMG) .; \
	else VERSION=$(VERSION) IMAGE=$(IMG) integration/images/operatorimage/build.sh bin; \
		echo "==> no engine answers $(CONTAINER_TOOL): $(IMG) is in $(CURDIR)/bin/operator-image.tar, for ctr -n k8s.io images import"; fi

docker-build-runtime: ## Build the container image RUNTIME_IMG for nodes with SmolVMs as an OCI archive, and load it into the engine of CONTAINER_TOOL where there is one
	@integration/build.sh .tools programs
	@integration/images/guestimage/build.sh .tools/guest micro
	@mkdir -p bin
	@VERSION=$(VERSION) RUNTIME_IMAGE=$(RUNTIME_IMG) GUESTS=$(TOOLS)/guest integration/images/runnerimage/build.sh bin smolvm
	@if $(has_engine); then $(CONTAINER_TOOL) load -i bin/smolvm-runtime-image.tar; \
	else echo "==> no engine answers $(CONTAINER_TOOL): $(RUNTIME_IMG) is in $(CURDIR)/bin/smolvm-runtime-image.tar, for ctr -n k8s.io images import"; fi

##@ Develop

.PHONY: tools machine-tools kubevirt-images next-tools generate manifests fmt vet update-deps check-env okteto-up okteto-down
tools: machine-tools ## Build what tests need: machine-tools, kwok, KubeVirt's control plane and a SPICE client. Cached for all checkouts
	@integration/build.sh .tools kwok kubevirt viewer

machine-tools: ## Build what workload clusters need: Kubernetes, ignition, helm, add-ons, guest images, the runner's images
	@integration/build.sh .tools programs kubeall ignition helm coredns flannel flannel-cni web cni-plugins containerd
	@integration/images/guestimage/build.sh .tools/guest
	@integration/images/runnerimage/build.sh .tools

kubevirt-images: ## Build KubeVirt's images, with Debian's libvirt and QEMU, and the operator's image for e2e-machines, as root. The first build takes ten minutes and more
	@integration/images/kubevirt/build.sh .tools
	@env -u IMAGE -u VERSION integration/images/operatorimage/build.sh .tools

next-tools: ## Build the next minor version of Kubernetes and a guest image for e2e-upgrade
	@integration/build.sh .tools/next programs kubeall-next ignition coredns flannel flannel-cni web containerd
	@TOOLS=.tools/next integration/images/guestimage/build.sh .tools/next/guest bare

.PHONY: $(TOOLS)/controller-gen $(TOOLS)/golangci-lint $(TOOLS)/helm
$(TOOLS)/controller-gen:
	@integration/build.sh .tools codegen

$(TOOLS)/golangci-lint:
	@integration/build.sh .tools lint

$(TOOLS)/helm:
	@integration/build.sh .tools helm

generate: manifests ## Write deep copies and CRDs from the API types, and config from the chart of kubevirt-operator
	@$(TOOLS)/controller-gen object paths=./pkg/apis/...

manifests: $(TOOLS)/controller-gen $(TOOLS)/helm ## Write CRDs from the API types, and config from the chart of kubevirt-operator
	@$(TOOLS)/controller-gen crd:allowDangerousTypes=true paths=./pkg/apis/... output:crd:artifacts:config=$(CRDS)
	@$(nullable) $(CRDS)/*.yaml
	@mkdir -p $(SMOLVM_CRDS) $(MACHINE_CRDS) && mv $(CRDS)/vm.smolvm.dev_*.yaml $(SMOLVM_CRDS) && mv $(CRDS)/vitistack.io_*.yaml $(MACHINE_CRDS)
	@HELM=$(TOOLS)/helm config/render.sh config

fmt: ## Format all Go files, without sorting their imports
	@go fmt ./...

vet: ## Run go vet
	@go vet ./...

update-deps: ## Update all modules to their latest minor versions
	@go get -u ./... && go mod tidy

check-env: ## List which of the programs that targets use are installed
	@for tool in go make git; do printf '%-8s' $$tool; command -v $$tool || { echo 'missing, every target needs it'; exit 1; }; done
	@for tool in gcc docker helm helm-docs kubectl okteto; do printf '%-10s' $$tool; command -v $$tool || echo 'missing, few targets need it'; done

# Where the chart is installed: make okteto-up NAMESPACE=infra.
NAMESPACE ?= giantswarm

# Admission of pods keeps the developer's container, which is root and has volumes, out of a namespace that enforces more.
enforce := pod-security.kubernetes.io/enforce
before  := okteto.kvm-operator.giantswarm.io/enforced-before

okteto-up: ## Replace the running operator in the cluster by a development container
	@for tool in kubectl okteto; do command -v $$tool >/dev/null || { echo "error: $$tool is not installed"; exit 1; }; done
	@sed 's/$$VERSION/$(or $(VERSION),$(shell go run . version | sed -n 's/^version: //p'))/' okteto.yml >.okteto.yml
	@if [ -z "$$(kubectl get namespace $(NAMESPACE) -o jsonpath='{.metadata.annotations.okteto\.kvm-operator\.giantswarm\.io/enforced-before}')" ]; then \
		level=$$(kubectl get namespace $(NAMESPACE) -o jsonpath='{.metadata.labels.pod-security\.kubernetes\.io/enforce}'); \
		kubectl annotate namespace $(NAMESPACE) $(before)="$${level:-none}"; \
	fi
	@kubectl label --overwrite namespace $(NAMESPACE) $(enforce)=privileged
	@okteto up --namespace $(NAMESPACE) -f .okteto.yml

okteto-down: ## Stop okteto and restore the operator and the Pod Security level of its namespace
	@for tool in kubectl okteto; do command -v $$tool >/dev/null || { echo "error: $$tool is not installed"; exit 1; }; done
	@okteto down --namespace $(NAMESPACE) -f .okteto.yml
	@level=$$(kubectl get namespace $(NAMESPACE) -o jsonpath='{.metadata.annotations.okteto\.kvm-operator\.giantswarm\.io/enforced-before}'); \
	case $$level in \
		'') ;; \
		none) kubectl label namespace $(NAMESPACE) $(enforce)- ;; \
		*) kubectl label --overwrite namespace $(NAMESPACE) $(enforce)=$$level ;; \
	esac
	@kubectl annotate namespace $(NAMESPACE) $(before)-
	@rm -f .okteto.yml

##@ Install

.PHONY: install uninstall deploy undeploy build-installer
# The release of deploy, which is one of its own: it runs nothing but SmolVMs.
RELEASE           ?= smolvm-operator
RELEASE_NAMESPACE ?= smolvm-system
INSTALLER         ?= dist/install.yaml
needs = command -v $(1) >/dev/null || { echo "error: $(1) is not installed: see $(2)"; exit 1; }
needs_kubectl = $(call needs,kubectl,https://kubernetes.io/docs/tasks/tools/)
needs_helm    = $(call needs,helm,https://helm.sh/docs/intro/install/)

install: ## Install the CRDs of SmolVMs into the cluster of your kubeconfig
	@$(needs_kubectl)
	@kubectl apply --server-side --force-conflicts -f $(SMOLVM_CRDS)

uninstall: ## Remove them, and with them every SmolVM
	@$(needs_kubectl)
	@kubectl delete --ignore-not-found -f $(SMOLVM_CRDS)

deploy: ## Install the controller and the runtime of SmolVMs, with the images IMG and RUNTIME_IMG, by the chart. ARGS are further arguments of helm
	@$(needs_helm)
	@helm upgrade --install $(RELEASE) helm/$(NAME) --namespace $(RELEASE_NAMESPACE) --create-namespace --skip-crds --take-ownership \
		--set-json 'controllers=[]' --set 'smolvm.enabled=true,smolvm.image=$(IMG),smolvm.runtime.image=$(RUNTIME_IMG)' $(ARGS)

undeploy: ## Remove them. The machines are powered down; their disks and the CRDs stay
	@$(needs_helm)
	@helm uninstall $(RELEASE) --namespace $(RELEASE_NAMESPACE)

# A token is random, so that none is in the file: it would be another one each time, or known to all who have the file.
build-installer: ## Write INSTALLER, dist/install.yaml, which kubectl applies where there is no helm: the definitions, controller and runtime of SmolVMs
	@$(needs_helm)
	@mkdir -p $(dir $(INSTALLER))
	@{ printf 'apiVersion: v1\nkind: Namespace\nmetadata:\n  name: %s\n  labels:\n    pod-security.kubernetes.io/enforce: privileged\n' $(RELEASE_NAMESPACE) && \
		helm template $(RELEASE) helm/$(NAME) --namespace $(RELEASE_NAMESPACE) --set-json 'controllers=[]' \
		--set 'smolvm.enabled=true,smolvm.image=$(IMG),smolvm.runtime.image=$(RUNTIME_IMG),smolvm.auth.secret=smolvm-runtime-auth' $(ARGS); } >$(INSTALLER).new
	@mv $(INSTALLER).new $(INSTALLER)
	@echo "==> $(INSTALLER) needs the Secret smolvm-runtime-auth: see docs/smolvm.md#without-helm"

##@ Chart

.PHONY: lint-chart update-chart helm-docs
no_chart = [ -e $(CHART) ] || { echo "error: there is no $(CHART): the repository has the CRDs of the chart and not the chart itself"; exit 1; }

lint-chart: ## Check the chart
	@$(no_chart)
	@command -v helm >/dev/null || { echo "error: helm is not installed: see https://helm.sh/docs/intro/install/"; exit 1; }
	@helm lint --strict helm/$(NAME) helm/kubevirt-operator

update-chart: ## Update the charts that the chart depends on
	@$(no_chart)
	@command -v helm >/dev/null || { echo "error: helm is not installed: see https://helm.sh/docs/intro/install/"; exit 1; }
	@helm dependency update helm/$(NAME)

helm-docs: ## Write the chart's README from its values
	@$(no_chart)
	@command -v helm-docs >/dev/null || { echo "error: helm-docs is not installed: go install github.com/norwoodj/helm-docs/cmd/helm-docs@latest"; exit 1; }
	@helm-docs --chart-search-root helm

##@ Help

.PHONY: help
help: ## Show this text
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z][-a-z0-9 ]*:.*## / { split($$1, names, ":"); n = split(names[1], each, " "); \
			for (i = 1; i <= n; i++) printf "  make %-20s %s\n", each[i], $$2 }' $(MAKEFILE_LIST)
