package cloudconfig

import (
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit/policy"
	authenticated "k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// request is a request to the API server: the user, and "<verb> <resource>.<group>" or "<verb> /path".
type request struct {
	user   string
	groups []string
	does   string
}

// auditLevel returns how much of a request a policy makes the API server log.
func auditLevel(text string, r request) (audit.Level, error) {
	rules, err := policy.LoadPolicyFromBytes([]byte(text))
	if err != nil {
		return "", err
	}
	verb, object, _ := strings.Cut(r.does, " ")
	attributes := authorizer.AttributesRecord{User: &authenticated.DefaultInfo{Name: r.user, Groups: append(r.groups, "system:authenticated")}, Verb: verb}
	if strings.HasPrefix(object, "/") {
		attributes.Path = object
	} else {
		attributes.ResourceRequest = true
		resource, group, _ := strings.Cut(object, ".")
		attributes.APIGroup = group
		attributes.Resource, attributes.Subresource, _ = strings.Cut(resource, "/")
	}
	return policy.NewPolicyRuleEvaluator(rules).EvaluatePolicyRule(attributes).Level, nil
}

func TestTheAuditLogHasWhatCountsAndNoNoise(t *testing.T) {
	node := request{user: "system:node:worker-a", groups: []string{"system:nodes"}}
	controller := request{user: "system:serviceaccount:kube-system:deployment-controller", groups: []string{"system:serviceaccounts", "system:serviceaccounts:kube-system"}}
	workload := request{user: "system:serviceaccount:shop:till", groups: []string{"system:serviceaccounts", "system:serviceaccounts:shop"}}
	manager, person := request{user: "system:kube-controller-manager"}, request{user: "ada"}
	text := mustText(t, auditPolicyFile)
	for _, test := range []struct {
		who  request
		does string
		want audit.Level
	}{
		{person, "get secrets", audit.LevelMetadata},
		{person, "update secrets", audit.LevelMetadata},
		{node, "get secrets", audit.LevelMetadata},
		{controller, "list secrets", audit.LevelMetadata},
		{node, "create serviceaccounts/token", audit.LevelMetadata},
		{node, "create tokenreviews.authentication.k8s.io", audit.LevelMetadata},
		{person, "get configmaps", audit.LevelMetadata},
		{person, "list pods", audit.LevelMetadata},
		{workload, "watch pods", audit.LevelMetadata},
		{person, "create pods", audit.LevelMetadata},
		{person, "create pods/exec", audit.LevelMetadata},
		{person, "create pods/portforward", audit.LevelMetadata},
		{person, "get pods/proxy", audit.LevelMetadata},
		{person, "create services/proxy", audit.LevelMetadata},
		{person, "patch deployments.apps", audit.LevelMetadata},
		{controller, "create replicasets.apps", audit.LevelMetadata},
		{person, "update leases.coordination.k8s.io", audit.LevelMetadata},
		{person, "create widgets.example.com", audit.LevelMetadata},
		{person, "get /metrics", audit.LevelMetadata},
		{person, "create clusterrolebindings.rbac.authorization.k8s.io", audit.LevelRequest},
		{workload, "patch roles.rbac.authorization.k8s.io", audit.LevelRequest},
		{person, "delete validatingwebhookconfigurations.admissionregistration.k8s.io", audit.LevelRequest},
		{person, "list rolebindings.rbac.authorization.k8s.io", audit.LevelMetadata},
		{request{user: "system:apiserver"}, "create clusterroles.rbac.authorization.k8s.io", audit.LevelMetadata},

		{person, "get /readyz", audit.LevelNone},
		{person, "get /apis/apps/v1", audit.LevelNone},
		{person, "list events", audit.LevelNone},
		{node, "create events.events.k8s.io", audit.LevelNone},
		{node, "update leases.coordination.k8s.io", audit.LevelNone},
		{manager, "update leases.coordination.k8s.io", audit.LevelNone},
		{workload, "update leases.coordination.k8s.io", audit.LevelNone},
		{node, "get nodes", audit.LevelNone},
		{node, "watch pods", audit.LevelNone},
		{node, "list configmaps", audit.LevelNone},
		{manager, "list replicasets.apps", audit.LevelNone},
		{controller, "watch deployments.apps", audit.LevelNone},
		{request{user: "system:apiserver"}, "list namespaces", audit.LevelNone},
	} {
		who := test.who
		who.does = test.does
		if got, err := auditLevel(text, who); err != nil || got != test.want {
			t.Errorf("%s, who does %s: level %s, %v; want %s", who.user, who.does, got, err, test.want)
		}
	}
}

// mustText returns a file of a master.
func mustText(t *testing.T, path string) string {
	t.Helper()
	return fileContent(t, mustRender(t, masterParams()), path)
}
