package cloudconfig

import "fmt"

// waitingDirectory contains the static pods that start once the API server of their machine is ready.
const waitingDirectory = "/etc/kubernetes/controllers"

// readyPause is how many seconds are between two checks whether the API server is ready.
const readyPause = 5

// controllers starts controller manager and scheduler once the API server is ready.
func controllers(p Params) parts {
	if !p.master() {
		return parts{}
	}
	all := parts{directories: []string{manifestDirectory, waitingDirectory}, files: []file{{path: scriptDirectory + "/controllers", mode: modeExecutable, text: asset("controllers.sh")}}}
	all.units = append(all.units, service("k8s-controllers.service", fmt.Sprintf(controllersUnit,
		p.Cluster.Kubernetes.API.SecurePort, caFile, controllerManagerKubeconfig, searchPath, readyPause*p.slowness(), waitingDirectory, manifestDirectory)))
	return all
}

// Nothing waits for this unit: a machine has started when its kubelet has.
const controllersUnit = `[Unit]
Description=Controllers of Kubernetes, once the API server is ready
After=k8s-download@kubectl.service

[Service]
Environment=HOME=/root PORT=%d CA=%s KUBECONFIG=%s "PATH=%s" PAUSE=%d TRIES=40 WAITING=%s MANIFESTS=%s
ExecStart=/opt/kvm-operator/controllers
Restart=on-failure
RestartSec=5

[Install]
WantedBy=multi-user.target
`
