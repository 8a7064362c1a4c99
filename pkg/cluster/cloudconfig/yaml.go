package cloudconfig

import (
	"crypto/sha256"
	"encoding/json"

	"k8s.io/utils/lru"
	"sigs.k8s.io/yaml"
)

// texts are the YAML texts of objects that were rendered last, by the hash of their JSON. Most files are the same on all
// nodes of a cluster, and many in all clusters, and converting JSON to YAML takes ten times as long as making the JSON.
var texts = lru.New(mostTexts)

// mostTexts bounds the memory for texts: they are some 2 KiB each.
const mostTexts = 512

// toYAML returns an object as YAML.
func toYAML(object any) (string, error) {
	raw, err := json.Marshal(object)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(raw)
	if text, ok := texts.Get(sum); ok {
		return text.(string), nil
	}
	text, err := yaml.JSONToYAML(raw)
	if err != nil {
		return "", err
	}
	texts.Add(sum, string(text))
	return string(text), nil
}
