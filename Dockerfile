FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=
RUN CGO_ENABLED=0 go build -trimpath \
    -ldflags "-s -w ${VERSION:+-X github.com/kvm-operator/kvm-operator/pkg/project.version=$VERSION}" \
    -o /opt/kvm-operator/kvm-operator . && \
    ln -s kvm-operator /opt/kvm-operator/kubevirt-operator

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
# With the name kubevirt-operator, the program is the operator for Machines.
COPY --from=build /opt/kvm-operator /opt/kvm-operator
USER 1000:1000
EXPOSE 8000
ENTRYPOINT ["/opt/kvm-operator/kvm-operator"]
CMD ["daemon"]
