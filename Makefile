# `make help` lists the targets. Go 1.26 and git are needed.
SHELL       := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.ONESHELL:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

export CGO_ENABLED ?= 0

PROGRAMS  := fieldpost-agent fieldpost-hub
PLATFORMS := linux/amd64 linux/arm64 linux/arm/6 linux/386 windows/amd64 darwin/arm64
VERSION   ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS   := -X main.version=$(VERSION)
RACE      := $(shell command -v gcc cc clang 2>/dev/null | head -1)

.PHONY: help build test test-arm check bench bench-wire bench-link demo demo-cluster dist clean

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## both programs into bin/
	@mkdir -p bin
	go build -ldflags '$(LDFLAGS)' -o bin/ $(PROGRAMS:%=./cmd/%)

test: ## every test; prints what was skipped and why (V=1: all output; ARGS='-run X')
	@mkdir -p .cache
	status=0
	go test -v -count=1 -timeout 30m $(ARGS) ./... 2>&1 | tee .cache/test.log | $(if $(V),cat,awk -f .ci/testlog.awk) || status=$$?
	awk -v summary=1 -f .ci/testlog.awk .cache/test.log
	exit $$status

test-arm: ## spool, sync and agent on 386, arm64 and armv6; by qemu-user, which apt installs
	@.ci/emulate

check: ## format, vet, staticcheck, import rules, cross builds, tidy, race detector
	@unformatted=$$(gofmt -l cmd agent spool sync hub testenv packaging)
	if [ -n "$$unformatted" ]; then echo "gofmt -w wants to change:" $$unformatted; exit 1; fi
	echo "== vet";           go vet ./...
	echo "== staticcheck";   go tool -modfile=tools.mod staticcheck ./...
	echo "== import rules, layout"; go test -count=1 -run 'TestImports|TestLayout' ./testenv
	echo "== tidy";          go mod tidy -diff
	for p in $(PLATFORMS); do
		IFS=/ read -r os arch arm <<<"$$p"
		echo "== build $$p"; GOOS=$$os GOARCH=$$arch GOARM=$$arm go build ./...
		case $$p in linux/386|windows/*) echo "== vet $$p, tests too"; GOOS=$$os GOARCH=$$arch go vet ./... ;; esac
	done
	if [ -z "$(RACE)" ]; then echo "== race: SKIPPED, the race detector needs a C compiler"; exit 0; fi
	echo "== race";          CGO_ENABLED=1 go test -race -short -count=1 -timeout 20m ./...

bench: ## the figures of the design beside their peers and limits (ARGS='-bench X')
	go test -run '^$$' -bench . -benchmem -timeout 60m $(ARGS) ./...

bench-wire: ## bytes a message: encoded, and at the TCP socket beside a NATS leaf node
	go test -run '^$$' -bench Wire -benchtime 1x -timeout 60m $(ARGS) ./sync/wire ./testenv

bench-link: ## share of slow and fast links that is used, an urgent message's delay, resumption
	go test -run '^$$' -bench Link -benchtime 1x -timeout 60m $(ARGS) ./testenv

demo: build ## a hub and two agents here, real readings, a cut link, a kill -9: under a minute
	go run ./testenv/demo

demo-cluster: build ## two hubs on three NATS servers here, killed and restarted in turn
	go build -o .cache/natsnode ./testenv/natsnode
	go run ./testenv/demo -cluster .cache/natsnode

dist: ## archives for every platform and their checksums into dist/
	@rm -rf dist && mkdir -p dist
	export SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct 2>/dev/null || echo 0)}
	for p in $(PLATFORMS); do
		IFS=/ read -r os arch arm <<<"$$p"
		name=fieldpost-$(VERSION)-$$os-$$arch$${arm:+v$$arm}
		mkdir dist/$$name
		GOOS=$$os GOARCH=$$arch GOARM=$$arm go build -trimpath -ldflags '-s -w $(LDFLAGS)' -o dist/$$name/ $(PROGRAMS:%=./cmd/%)
		cp -r LICENSE README.md packaging/CHANGELOG.md packaging/examples dist/$$name/
		tar -C dist --sort=name --mtime=@$$SOURCE_DATE_EPOCH --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX -cf - $$name | gzip -9n > dist/$$name.tar.gz
		rm -r dist/$$name
	done
	cd dist && sha256sum *.tar.gz | tee SHA256SUMS

clean: ## remove what was built
	rm -rf bin dist .cache
