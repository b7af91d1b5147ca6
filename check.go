package main

import (
	"github.com/islet-edge/islet/agent/pod/spec/admit"
	"github.com/islet-edge/islet/edge/check"
	"github.com/islet-edge/islet/internal/finding"
)

// checkFiles checks manifests and configurations for islet check and islet apply --dry-run. If node is nil, the report also contains the
// fields of pods that no node supports, according to the agent's admission. A given node checks pods for unsupported fields itself, with
// its own settings.
func checkFiles(files []finding.File, node *finding.Node) finding.Report {
	var rules check.Rules
	if node == nil {
		rules.Unsupported = admit.Unsupported
	}
	return rules.Check(files, node)
}
