package cloudconfig

import (
	"embed"
)

// assets are files that are passed to the guest as they are. Values that differ between clusters are passed to them by
// environment variables.
//
//go:embed assets
var assets embed.FS

// asset returns the content of a file below assets. A name that does not exist is a mistake that every test finds.
func asset(name string) string {
	content, err := assets.ReadFile("assets/" + name)
	if err != nil {
		panic(err)
	}
	return string(content)
}
