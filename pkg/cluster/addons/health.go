package addons

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// Unavailable describes each program that is not available, sorted by kind and name; it is empty if all are. A
// DaemonSet is available if it has an available pod on each node that it should run on, of which there has to be at
// least one. A Deployment is available while it is Available and has an available pod, or if it is scaled to zero.
// Neither is until its controller has observed it. The descriptions contain no counts, because these change with each
// node that joins.
func Unavailable(daemonSets []appsv1.DaemonSet, deployments []appsv1.Deployment) []string {
	var all []string
	for i := range daemonSets {
		if why := daemonSetUnavailable(&daemonSets[i]); why != "" {
			all = append(all, fmt.Sprintf("DaemonSet %s/%s %s", daemonSets[i].Namespace, daemonSets[i].Name, why))
		}
	}
	for i := range deployments {
		if why := deploymentUnavailable(&deployments[i]); why != "" {
			all = append(all, fmt.Sprintf("Deployment %s/%s %s", deployments[i].Namespace, deployments[i].Name, why))
		}
	}
	slices.Sort(all)
	return all
}

func daemonSetUnavailable(d *appsv1.DaemonSet) string {
	switch status := d.Status; {
	case status.ObservedGeneration < d.Generation:
		return "has not been observed by its controller yet"
	case status.DesiredNumberScheduled == 0:
		return "has no node to run on yet"
	case status.NumberAvailable < status.DesiredNumberScheduled:
		return "is not available on all nodes"
	}
	return ""
}

func deploymentUnavailable(d *appsv1.Deployment) string {
	wanted := d.Spec.Replicas == nil || *d.Spec.Replicas > 0
	switch {
	case d.Status.ObservedGeneration < d.Generation:
		return "has not been observed by its controller yet"
	case wanted && d.Status.AvailableReplicas == 0:
		return "has no available pod"
	case wanted && !isAvailable(d):
		return "has too few available pods"
	}
	return ""
}

func isAvailable(d *appsv1.Deployment) bool {
	return slices.ContainsFunc(d.Status.Conditions, func(c appsv1.DeploymentCondition) bool {
		return c.Type == appsv1.DeploymentAvailable && c.Status == corev1.ConditionTrue
	})
}
