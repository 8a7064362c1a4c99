// Package cniplugins pins the standard CNI plugins, which integration/build.sh packs as their makers do: nodes whose guest image
// has no plugins download that archive from the mirror of the stage.
package cniplugins
