package cmd_test

import "testing"

// TestRenderGivesTheVerdictOfTheAPIServer: one mistake gives one line.
func TestRenderGivesTheVerdictOfTheAPIServer(t *testing.T) {
	const spec = "apiVersion: provider.giantswarm.io/v1alpha1\nkind: KVMConfig\nmetadata: {name: ab1cd}\nspec: "
	const rest = "kubernetes: {api: {domain: api.ab1cd.example.org}}"
	const machine = "{cpus: 2, memory: 4G}"
	for name, test := range map[string]struct{ manifest, want string }{
		"a worker twice": {
			spec + "{cluster: {id: ab1cd, masters: [{id: a}], workers: [{id: b}, {id: b}], " + rest + "}, kvm: {masters: [" + machine + "], workers: [" + machine + "," + machine + "]}}",
			`-: KVMConfig ab1cd is not valid: spec.cluster.workers[1]: Duplicate value: {"id":"b"}`,
		},
		"null instead of what is empty": {
			spec + "{versions: {kubernetes: null}, cluster: {id: ab1cd, masters: [{id: a}], workers: null, " + rest + "}, kvm: {masters: [" + machine + "], workers: null}}",
			"",
		},
		"a number of 33 bits": {
			spec + "{cluster: {id: ab1cd, masters: [{id: a}], scaling: {max: 4294967296}, " + rest + "}, kvm: {masters: [" + machine + "]}}",
			"-: KVMConfig ab1cd is not valid: spec.cluster.scaling.max: Invalid value: 4294967296: spec.cluster.scaling.max in body should be less than or equal to 2147483647",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if _, failure := run(t, test.manifest, "render", "-f", "-"); failure != test.want {
				t.Errorf("render says\n%s\nwant\n%s", failure, test.want)
			}
		})
	}
	t.Run("a pod network of the management cluster", func(t *testing.T) {
		_, failure := run(t, "", "render", "-f", examples+"minimal.yaml", "--service.installation.podcidrs=172.31.0.0/16")
		if failure == "" {
			t.Error("networks that overlap are rendered")
		}
	})
}
