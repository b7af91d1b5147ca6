package untrusted_test

import (
	"testing"

	"github.com/islet-edge/islet/internal/untrusted"
)

// TestSplitLog checks that the directories of a pod and of its container are part of the name, so that symlinks there are not followed.
func TestSplitLog(t *testing.T) {
	for path, want := range map[string][2]string{
		"/var/log/pods/ns_web_u1/c/0.log": {"/var/log/pods", "ns_web_u1/c/0.log"},
		"/logs/ns_web_u1//c/0.log":        {"/logs", "ns_web_u1/c/0.log"},
		"/ns_web_u1/c/0.log":              {"/", "ns_web_u1/c/0.log"},
		"ns_web_u1/c/0.log":               {".", "ns_web_u1/c/0.log"},
		"/var/log/app/0.log":              {"/var/log/app", "0.log"},
		"0.log":                           {".", "0.log"},
	} {
		if root, name := untrusted.SplitLog(path); root != want[0] || name != want[1] {
			t.Errorf("%s: %s and %s, not %q", path, root, name, want)
		}
	}
}
