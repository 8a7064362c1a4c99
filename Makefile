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

TOOLS   := $(CURDIR)/.tools
# Vault's module is left out: what it needs is as much as all the others together.
MODULES := $(filter-out integration/vault,. $(patsubst %/go.mod,%,$(wildcard integration/*/go.mod integration/*/*/go.mod)))
STARTED := $(shell date +%s)
CRDS    := helm/$(NAME)/crds
CHART   := helm/$(NAME)/Chart.yaml

# Several management clusters at a time are fast; more of them than cores make timeouts a matter of luck.
TEST_PACKAGES_AT_ONCE ?= 2
TEST_TIMEOUT          ?= 40m
E2E_TIMEOUT           ?= 2h
HA_TIMEOUT            ?= 2h
BENCH_TIMEOUT         ?= 2h
SOAK                  ?= 1h
COURSES_FOR           ?= 0s
SEED                  ?= $(shell date +%s)
# Packages whose tests run virtual machines.
WITH_MACHINES := /(integration/(live|machine|realcluster|runnerimage)|pkg/(guestnet|qemu))$$
export KUBEBUILDER_ASSETS := $(TOOLS)
# Says how long each suite took beside its budget; a failure of what it reads stays one.
suites := awk -v budgets=integration/budgets -f integration/suites.awk

go_build = CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o

##@ Try it

.PHONY: demo demo-down
demo: ## A management cluster with real hosts, the operator, and a workload cluster of virtual machines, on this machine, as root; Ctrl-C ends it. Without a terminal it ends when its work is done, unless KEEP=1
	@go run ./integration/demo check
	@$(MAKE) machine-tools
	@go run ./integration/demo up $(if $(KEEP),-exit=false)

demo-down: ## Stop a demo that was left behind
	@go run ./integration/demo down

##@ Test

.PHONY: test states vault courses chaos soak e2e e2e-life e2e-operations e2e-upgrade e2e-ha unit race bench bench-machine bench-founding lint imports verify verify-generated verify-format verify-modules nancy
test: verify lint tools ## Everything: generated files, format, modules, linters, unit and integration tests; vault, more courses with faults and e2e as far as there is time
	@echo "==> testing: up to $(TEST_PACKAGES_AT_ONCE) packages at a time; the ones with a management cluster take a minute or more each"
	@go test -p $(TEST_PACKAGES_AT_ONCE) -timeout $(TEST_TIMEOUT) $$(go list ./... | grep -vE '$(WITH_MACHINES)|/integration/(e2e|issuer)$$') | $(suites)
	@echo "==> testing virtual machines: one package at a time, for each of them keeps all cores busy"
	@go test -p 1 -timeout $(TEST_TIMEOUT) $$(go list ./... | grep -E '$(WITH_MACHINES)') | $(suites)
	@$(MAKE) --no-print-directory states
	@integration/ifthereistime.sh $(STARTED) e2e-life:50 courses:25 vault:15 e2e-operations:60

states: ## What is decided about etcd, drains, repairs and rollouts, in every small state there is, with the count of states
	@for package in pkg/etcd pkg/drain pkg/remediation pkg/rolling; do \
		go test -v ./$$package | awk -v package=$$package '/^=== RUN/ {test = $$3} \
			/ (states|situations)/ {sub(".*_test.go:[0-9]*: ", ""); print package " " test ": " $$0} \
			/FAIL|panic:/ {print; failed = 1} END {exit failed}' || exit 1; \
	done

vault: ## Certificates from a real Vault; the part of test that builds longest, and is left out when there is no time for it
	@integration/build.sh .tools kubeall kwok vault
	@go test -timeout $(TEST_TIMEOUT) ./integration/issuer

courses: tools ## The other 450 of the 500 courses of chaos, or as many of them as begin within COURSES_FOR; the part of test that is left out when there is no time for it
	@go test -v -timeout $(BENCH_TIMEOUT) -run TestCoursesWithFaults ./integration/chaos -seed=51 -courses=450 -for=$(COURSES_FOR)

chaos: tools ## Clusters that are changed and hurt at random, from fixed seeds, beside an operator that meets faults, and an operator that crashes at every write of a drain; test has all of the 500 if there is time, the first 50 in any case, and one in seventeen crashes
	@go test -v -timeout $(BENCH_TIMEOUT) ./integration/chaos -courses=500 -every=1

soak: tools ## The same for SOAK, an hour unless set, from SEED, which is another one each time
	@go test -v -timeout 0 -run TestCoursesWithFaults ./integration/chaos -courses=0 -for=$(SOAK) -seed=$(SEED)

e2e: e2e-life e2e-operations ## Workload clusters of virtual machines on a real management cluster; the part of test that takes longest, and is left out as far as there is no time for it

e2e-life: machine-tools ## One of them from its KVMConfig to its end
	@go test -v -timeout $(E2E_TIMEOUT) -run TestLifeOfACluster ./integration/e2e

e2e-operations: machine-tools ## Workers that are removed, changed, killed, hung and driven off their host, beside an operator that is killed all the time
	@go test -v -timeout $(E2E_TIMEOUT) -run TestOperations ./integration/e2e

e2e-upgrade: machine-tools next-tools ## A master and a worker that go to the next minor version of Kubernetes
	@go test -v -timeout $(E2E_TIMEOUT) -run TestUpgrade ./integration/e2e

e2e-ha: tools ## Three masters as virtual machines, which are brought back to a snapshot, killed one by one, and of which another takes the place of one
	@go test -v -timeout $(HA_TIMEOUT) -run TestThreeMastersSurviveTheDeathOfAnyOne ./integration/e2e

unit: ## The tests that need neither tools nor a management cluster
	@go test -short $$(go list ./... | grep -vE '/(integration|pkg/apis)/')

race: ## The tests of unit under the race detector; needs a C compiler
	@command -v gcc >/dev/null || { echo "error: the race detector needs gcc; install it, on Debian with: apt-get install gcc libc6-dev"; exit 1; }
	@go test -race -short $$(go list ./... | grep -vE '/(integration|pkg/apis)/')

bench: tools ## Benchmarks on many clusters; takes long
	@go test -run '^$$' -bench . -benchtime 1x -timeout $(BENCH_TIMEOUT) -v ./integration/scale/... ./integration/living/...

bench-machine: tools ## The runner against bare QEMU under the same arguments; wants a machine without other work
	@go test -run '^$$' -bench . -benchtime 1x -timeout $(BENCH_TIMEOUT) -v ./integration/machine/...

bench-founding: tools ## A workload cluster of virtual machines made by the operator against one made by hand; wants a machine without other work
	@go test -run '^$$' -bench Founding -benchtime 1x -timeout $(BENCH_TIMEOUT) -v ./integration/e2e

lint: $(TOOLS)/golangci-lint ## Run the linters of .golangci.yaml
	@echo "==> linting"
	@$(TOOLS)/golangci-lint run --allow-parallel-runners ./...

imports: $(TOOLS)/golangci-lint ## Format all Go files and sort their imports
	@$(TOOLS)/golangci-lint fmt ./...

verify: verify-generated verify-format verify-modules ## Generated files, format, vet and modules are as they should be
	@echo "==> go vet"
	@go vet ./...

verify-generated: $(TOOLS)/controller-gen
	@echo "==> generated files"
	@new=$$(mktemp -d); trap 'rm -rf "$$new"' EXIT; \
	$(TOOLS)/controller-gen crd:allowDangerousTypes=true paths=./pkg/apis/... output:crd:artifacts:config="$$new/crds"; \
	diff -ru $(CRDS) "$$new/crds" || { echo "error: $(CRDS) is outdated: run make generate"; exit 1; }; \
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

nancy: ## Check the modules against go.sum; tell how to look for known vulnerabilities
	@go mod verify
	@echo "Known vulnerabilities are looked up online: go run golang.org/x/vuln/cmd/govulncheck@latest ./..."

##@ Build

.PHONY: build build-linux build-linux-arm64 build-darwin build-darwin-arm64 build-windows-amd64 install run clean build-docker build-docker-runner
build: ## Build bin/kvm-operator for this machine
	@$(go_build) bin/$(NAME) .

build-linux build-linux-arm64 build-darwin build-darwin-arm64 build-windows-amd64: build-%: ## Build bin/kvm-operator-<os>-<arch>
	@os=$(word 1,$(subst -, ,$*)) arch=$(or $(word 2,$(subst -, ,$*)),amd64); \
	GOOS=$$os GOARCH=$$arch $(go_build) bin/$(NAME)-$$os-$$arch$$([ $$os != windows ] || echo .exe) .

install: ## Install kvm-operator into Go's bin directory
	@CGO_ENABLED=0 go install -trimpath -ldflags '$(LDFLAGS)' .

run: ## Run the operator from the checkout against the cluster of ~/.kube/config; ARGS are further arguments
	@go run . daemon --service.kubernetes.kubeconfigpath="$${KUBECONFIG:-$$HOME/.kube/config}" $(ARGS)

clean: ## Stop the demo and remove what was built here; the cache of built tools stays
	@[ ! -d .demo ] || $(MAKE) demo-down
	@rm -rf bin .tools cover.out

build-docker-runner: ## Build the container image of node pods; RUNNER_IMAGE names it
	@command -v docker >/dev/null || { echo "error: docker is not installed: see https://docs.docker.com/engine/install/"; exit 1; }
	@docker build --platform linux/amd64 --build-arg VERSION=$(VERSION) -f runner/Dockerfile -t $(RUNNER_IMAGE) .

build-docker: ## Build the container image; IMAGE names it
	@command -v docker >/dev/null || { echo "error: docker is not installed: see https://docs.docker.com/engine/install/"; exit 1; }
	@docker build --build-arg VERSION=$(VERSION) -t $(IMAGE) .

##@ Develop

.PHONY: tools machine-tools next-tools generate update-deps check-env okteto-up okteto-down
tools: machine-tools ## Build what tests need: that of machine-tools, and kwok; cached for all checkouts
	@integration/build.sh .tools kwok

machine-tools: ## Build what clusters of machines need: Kubernetes, ignition, helm, add-ons, guest images, the runner's image
	@integration/build.sh .tools programs kubeall ignition helm coredns flannel flannel-cni web cni-plugins
	@integration/guestimage/build.sh .tools/guest
	@integration/runnerimage/build.sh .tools

next-tools: ## Build what a cluster is upgraded to: Kubernetes of the next minor version, and a guest image with its container images
	@integration/build.sh .tools/next programs kubeall-next ignition coredns flannel flannel-cni web
	@TOOLS=.tools/next integration/guestimage/build.sh .tools/next/guest bare

.PHONY: $(TOOLS)/controller-gen $(TOOLS)/golangci-lint
$(TOOLS)/controller-gen:
	@integration/build.sh .tools codegen

$(TOOLS)/golangci-lint:
	@integration/build.sh .tools lint

generate: $(TOOLS)/controller-gen ## Write deep copies and CRDs from the API types
	@$(TOOLS)/controller-gen object crd:allowDangerousTypes=true paths=./pkg/apis/... output:crd:artifacts:config=$(CRDS)

update-deps: ## Update all modules to their latest minor versions
	@go get -u ./... && go mod tidy

check-env: ## Say what is on this machine of what targets use
	@for tool in go make git; do printf '%-8s' $$tool; command -v $$tool || { echo 'missing, every target needs it'; exit 1; }; done
	@for tool in gcc docker helm helm-docs kubectl okteto; do printf '%-10s' $$tool; command -v $$tool || echo 'missing, few targets need it'; done

# Where the chart is installed: make okteto-up NAMESPACE=infra.
NAMESPACE ?= giantswarm

# Admission of pods keeps the developer's container, which is root and has volumes, out of a namespace that enforces more.
enforce := pod-security.kubernetes.io/enforce
before  := okteto.kvm-operator.giantswarm.io/enforced-before

okteto-up: ## Develop in the management cluster: replace the running operator by a container with a shell
	@for tool in kubectl okteto; do command -v $$tool >/dev/null || { echo "error: $$tool is not installed"; exit 1; }; done
	@sed 's/$$VERSION/$(or $(VERSION),$(shell go run . version | sed -n 's/^version: //p'))/' okteto.yml >.okteto.yml
	@if [ -z "$$(kubectl get namespace $(NAMESPACE) -o jsonpath='{.metadata.annotations.okteto\.kvm-operator\.giantswarm\.io/enforced-before}')" ]; then \
		level=$$(kubectl get namespace $(NAMESPACE) -o jsonpath='{.metadata.labels.pod-security\.kubernetes\.io/enforce}'); \
		kubectl annotate namespace $(NAMESPACE) $(before)="$${level:-none}"; \
	fi
	@kubectl label --overwrite namespace $(NAMESPACE) $(enforce)=privileged
	@okteto up --namespace $(NAMESPACE) -f .okteto.yml

okteto-down: ## Give the operator back its place and the namespace its pod security level
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

##@ Chart

.PHONY: lint-chart update-chart helm-docs
no_chart = [ -e $(CHART) ] || { echo "error: there is no $(CHART): the repository has the CRDs of the chart and not the chart itself"; exit 1; }

lint-chart: ## Check the chart
	@$(no_chart)
	@command -v helm >/dev/null || { echo "error: helm is not installed: see https://helm.sh/docs/intro/install/"; exit 1; }
	@helm lint --strict helm/$(NAME)

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
