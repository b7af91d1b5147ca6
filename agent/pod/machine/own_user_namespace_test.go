package machine

import (
	"testing"
	"testing/fstest"
)

// TestInUserNamespace checks the value of runningInUserNamespace in the status of the Node.
func TestInUserNamespace(t *testing.T) {
	for text, want := range map[string]bool{
		"         0          0 4294967295\n":                false,
		"         0     100000      65536\n":                true,
		"         0          0       1000\n 1000 1 64536\n": true,
		"         0          0 4294967295\n 1 1 1\n":        true,
	} {
		got := inUserNamespace(fstest.MapFS{"self/uid_map": {Data: []byte(text)}})
		if got == nil || *got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	if got := inUserNamespace(fstest.MapFS{}); got != nil {
		t.Errorf("without a map: %v", *got)
	}
}
