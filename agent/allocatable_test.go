package agent

import (
	"context"
	"testing"

	"github.com/islet-edge/islet/agent/config"
)

func TestAllocatable(t *testing.T) {
	for args, want := range map[string]int64{"--max-pods=7": 7, "--pods-per-core=1000000": 110} {
		cfg, _, err := config.Load([]string{"--hostname-override=n", "--state-dir=" + t.TempDir(), args})
		if err != nil {
			t.Fatal(err)
		}
		room, err := allocatable(context.Background(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if room.Pods().Value() != want || room.Cpu().Value() < 1 || room.Memory().Value() < 1<<20 || room.StorageEphemeral().Value() < 1<<20 {
			t.Errorf("%s: got %v", args, room)
		}
	}
}
