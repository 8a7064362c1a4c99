package cloudconfig

import (
	"embed"
)

// assets are files that go to the guest as they are. What differs between clusters reaches them by environment.
//
//go:embed assets
var assets embed.FS

// asset is the content of a file below assets. A name that does not exist is a mistake that every test finds.
func asset(name string) string {
	content, err := assets.ReadFile("assets/" + name)
	if err != nil {
		panic(err)
	}
	return string(content)
}
