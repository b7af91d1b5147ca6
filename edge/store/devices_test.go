package store

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// TestDevices checks that devices survive a restart and are removed with their pod. Claims are not removed.
func TestDevices(t *testing.T) {
	s := open(t, t.TempDir()+"/islet.db")
	ctx := t.Context()
	web := typical("web")
	must(t, s.UpdatePods(ctx, []Pod{web}, nil))
	must(t, s.MarkFilled(ctx))
	rows := []Devices{{web.Pod.UID, "c", "example.com/a", 1, []byte("1")}, {"stranger", "c", "example.com/a", 1, []byte("2")}}
	must(t, s.GiveDevices(ctx, rows))
	rows[0].Given = []byte("3")
	must(t, s.GiveDevices(ctx, rows[:1]))
	claims := []Claim{{"u", "d", "ns", "n", []byte("1")}, {"u", "e", "ns", "n", []byte("1")}}
	must(t, s.PutClaims(ctx, claims))
	must(t, s.RemoveClaims(ctx, claims[1:]))
	s = reopen(t, s)
	list, err := s.Devices(ctx)
	if err != nil || len(list) != 1 || string(list[0].Given) != "3" {
		t.Errorf("got %+v: %v", list, err)
	}
	must(t, s.UpdatePods(ctx, nil, []types.UID{web.Pod.UID}))
	if list, err = s.Devices(ctx); err != nil || len(list) != 0 {
		t.Errorf("devices of a removed pod: %+v, %v", list, err)
	}
	must(t, s.UpdatePods(ctx, []Pod{web}, nil))
	other := rows[0]
	other.Resource = "cpu"
	must(t, s.GiveDevices(ctx, []Devices{rows[0], other}))
	must(t, s.TakeDevices(ctx, web.Pod.UID, "cpu", "memory"))
	if list, err = s.Devices(ctx); err != nil || len(list) != 1 || list[0].Resource != rows[0].Resource {
		t.Errorf("after the release of the other resources: %+v, %v", list, err)
	}
	must(t, s.TakeDevices(ctx, web.Pod.UID, rows[0].Resource))
	if list, err = s.Devices(ctx); err != nil || len(list) != 0 {
		t.Errorf("given back: %+v, %v", list, err)
	}
	if left, err := s.Claims(ctx); err != nil || len(left) != 1 || left[0].Driver != "d" {
		t.Errorf("claims %+v: %v", left, err)
	}
}
