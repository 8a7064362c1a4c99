package pki_test

import (
	"testing"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
)

func TestIssuersOfOtherMountsAreRefused(t *testing.T) {
	const mount, commonName = "pki-kubernetes-ab1cd", "kubernetes-ab1cd"
	for name, test := range map[string]struct {
		path   string
		in, of bool
	}{
		"by id":                       {mount + "/issuer/4e7d61d1-8d6d-0b0a-5c5c-7f4c0ab41f5b", true, true},
		"by name":                     {mount + "/issuer/default", true, true},
		"another prefix":              {"kvm/kubernetes-ab1cd/issuer/default", false, true},
		"another cluster":             {"pki-kubernetes-victm/issuer/default", false, false},
		"another CA":                  {"pki-etcd-ab1cd/issuer/default", false, false},
		"a longer mount":              {mount + "x/issuer/default", false, false},
		"nothing":                     {"", false, false},
		"the mount alone":             {mount + "/issuer/", false, false},
		"more after it":               {mount + "/issuer/default/sign-verbatim/x", false, false},
		"up after it":                 {mount + "/issuer/..", false, false},
		"up and into another":         {mount + "/issuer/../../pki-kubernetes-victm/issuer/default", false, false},
		"up before it":                {"pki-kubernetes-victm/../" + mount + "/issuer/default", false, false},
		"into another, and its name":  {"sys/x/" + mount + "/issuer/../issuer/default", false, false},
		"from the root":               {"/" + mount + "/issuer/default", false, false},
		"an empty part":               {"a//" + mount + "/issuer/default", false, false},
		"a query":                     {mount + "/issuer/default?x=", false, false},
		"a query before it":           {"sys/x?y=" + mount + "/issuer/default", false, false},
		"a fragment":                  {mount + "/issuer/default#", false, false},
		"an escape":                   {mount + "/issuer/%2e%2e", false, false},
		"an escape before it":         {"pki-kubernetes-victm/%2e%2e/" + mount + "/issuer/default", false, false},
		"a line break":                {mount + "/issuer/default\n", false, false},
		"the mount in another's path": {"pki-kubernetes-victm/issuer/" + mount + "/issuer/default/x", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			if in, of := pki.IssuerIn(test.path, mount), pki.IssuerOf(test.path, commonName); in != test.in || of != test.of {
				t.Errorf("IssuerIn = %t, IssuerOf = %t, want %t and %t", in, of, test.in, test.of)
			}
		})
	}
	if pki.IssuerOf("pki-x/issuer/default", "") || pki.IssuerIn("/issuer/default", "") {
		t.Error("a CA without a name, or a mount without one, has an issuer")
	}
}
