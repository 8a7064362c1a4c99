package realcluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// OfferDevices runs a device plugin that offers device files of the node as an extended resource, to one container at a
// time, until the context ends. It is a plugin of the lab, for tests: it has one device of each resource, which is
// always healthy.
func (n *Node) OfferDevices(ctx context.Context, resource string, files ...string) error {
	directory := filepath.Join("/proc", fmt.Sprint(n.PID()), "root", deviceplugin.DevicePluginPath)
	endpoint := strings.ReplaceAll(resource, "/", "-") + ".sock"
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", filepath.Join(directory, endpoint))
	if err != nil {
		return fmt.Errorf("offering %s on %s: %w", resource, n.Name(), err)
	}
	server := grpc.NewServer()
	deviceplugin.RegisterDevicePluginServer(server, &plugin{ended: ctx.Done(), files: files})
	go func() { _ = server.Serve(listener) }() // until it is stopped
	context.AfterFunc(ctx, server.Stop)
	if err := register(ctx, filepath.Join(directory, filepath.Base(deviceplugin.KubeletSocket)), endpoint, resource); err != nil {
		server.Stop()
		return fmt.Errorf("offering %s on %s: %w", resource, n.Name(), err)
	}
	return nil
}

// register registers a plugin with a kubelet.
func register(ctx context.Context, kubelet, endpoint, resource string) (err error) {
	connection, err := grpc.NewClient("unix:"+kubelet, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, connection.Close()) }()
	_, err = deviceplugin.NewRegistrationClient(connection).Register(ctx, &deviceplugin.RegisterRequest{
		Version: deviceplugin.Version, Endpoint: endpoint, ResourceName: resource, Options: &deviceplugin.DevicePluginOptions{},
	})
	return err
}

type plugin struct {
	deviceplugin.UnimplementedDevicePluginServer
	ended <-chan struct{}
	files []string
}

// GetDevicePluginOptions returns no options.
func (p *plugin) GetDevicePluginOptions(context.Context, *deviceplugin.Empty) (*deviceplugin.DevicePluginOptions, error) {
	return &deviceplugin.DevicePluginOptions{}, nil
}

// ListAndWatch reports the one device and no changes.
func (p *plugin) ListAndWatch(_ *deviceplugin.Empty, kubelet grpc.ServerStreamingServer[deviceplugin.ListAndWatchResponse]) error {
	devices := []*deviceplugin.Device{{ID: "0", Health: deviceplugin.Healthy}}
	if err := kubelet.Send(&deviceplugin.ListAndWatchResponse{Devices: devices}); err != nil {
		return err
	}
	select {
	case <-p.ended:
	case <-kubelet.Context().Done():
	}
	return nil
}

// Allocate gives a container the device files.
func (p *plugin) Allocate(_ context.Context, request *deviceplugin.AllocateRequest) (*deviceplugin.AllocateResponse, error) {
	var response deviceplugin.AllocateResponse
	for range request.ContainerRequests {
		var container deviceplugin.ContainerAllocateResponse
		for _, file := range p.files {
			if _, err := os.Stat(file); err == nil {
				container.Devices = append(container.Devices, &deviceplugin.DeviceSpec{HostPath: file, ContainerPath: file, Permissions: "rw"})
			}
		}
		response.ContainerResponses = append(response.ContainerResponses, &container)
	}
	return &response, nil
}
