FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=
RUN CGO_ENABLED=0 go build -trimpath \
    -ldflags "-s -w ${VERSION:+-X github.com/kvm-operator/kvm-operator/pkg/project.version=$VERSION}" \
    -o /kvm-operator .

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /kvm-operator /opt/kvm-operator/kvm-operator
USER 1000:1000
EXPOSE 8000
ENTRYPOINT ["/opt/kvm-operator/kvm-operator"]
CMD ["daemon"]
