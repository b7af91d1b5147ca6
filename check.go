package main

import (
	"github.com/islet-edge/islet/agent/pod/spec/admit"
	"github.com/islet-edge/islet/edge/check"
	"github.com/islet-edge/islet/internal/finding"
)

// checkFiles checks manifests and configurations for islet check and islet apply --dry-run. The rules for what a node does not support are
// those of its admission. A known node applies them itself, with its settings.
func checkFiles(files []finding.File, node *finding.Node) finding.Report {
	var rules check.Rules
	if node == nil {
		rules.Unsupported = admit.Unsupported
	}
	return rules.Check(files, node)
}
