package state

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// Objects are the objects of a cluster's machines on the management cluster.
type Objects struct {
	Pods []corev1.Pod
	// Deployments are those of the nodes of the spec, by name, and Retired those of masters that are not in the spec.
	Deployments map[string]*appsv1.Deployment
	Retired     []appsv1.Deployment
}
