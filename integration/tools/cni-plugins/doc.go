// Package cniplugins pins the standard CNI plugins. integration/build.sh packs them as upstream does. Nodes whose guest
// image has no plugins download that archive from the mirror of the stage.
package cniplugins
