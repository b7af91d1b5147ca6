package describe

import (
	"io"
	"strings"
	"testing"

	"github.com/islet-edge/islet/agent/kubelet/server/local/node"
)

// TestBackupTwice requests a backup while another one is made.
func TestBackupTwice(t *testing.T) {
	a := New(Config{})
	a.backups.Lock()
	if err := a.Backup(t.Context(), io.Discard, node.BackupOptions{}); err == nil || !strings.Contains(err.Error(), "another backup") {
		t.Error(err)
	}
}
