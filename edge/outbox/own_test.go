package outbox

import (
	"bytes"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/islet-edge/islet/internal/fieldtest"
	"github.com/islet-edge/islet/internal/podspec"
)

// TestOwnConditions checks that the node sends its own conditions and no conditions of other clients. It sends shared conditions only
// while the node has them.
func TestOwnConditions(t *testing.T) {
	all := []v1.PodConditionType{v1.PodReadyToStartContainers, v1.PodInitialized, v1.PodReady, v1.ContainersReady,
		v1.PodScheduled, v1.AllContainersRestarting,
		v1.PodResizePending, v1.PodResizeInProgress, podspec.DevicesPlugged, v1.DisruptionTarget, "example.com/gate"}
	own, shared := all[:9], all[:10]
	var s v1.PodStatus
	for _, c := range all {
		s.Conditions = append(s.Conditions, v1.PodCondition{Type: c})
	}
	types := func(s v1.PodStatus) (out []v1.PodConditionType) {
		for _, c := range s.Conditions {
			out = append(out, c.Type)
		}
		return out
	}
	if got := types(ownPart(s, &v1.PodStatus{})); !slices.Equal(got, own) {
		t.Errorf("%v", got)
	}
	if got := types(ownPart(s, &s)); !slices.Equal(got, shared) {
		t.Errorf("%v", got)
	}
	s.Conditions[9].Reason = v1.PodReasonTerminationByKubelet // a condition of a machine that was off
	if got := types(ownPart(s, &v1.PodStatus{})); !slices.Equal(got, shared) {
		t.Errorf("%v", got)
	}
}

// TestOwnFields checks that a patch contains the fields that docs/pod-status.md documents as filled by the node, and no others. The other
// fields stay as the server has them. The page has a row for each field of the API.
func TestOwnFields(t *testing.T) {
	page, err := os.ReadFile("../../docs/pod-status.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rows, _ := strings.Cut(string(page), "\n## status\n")
	rows, _, _ = strings.Cut(rows, "\n## ")
	var full v1.PodStatus // each field has a value
	for _, f := range reflect.ValueOf(&full).Elem().Fields() {
		switch f.Kind() {
		case reflect.Pointer:
			f.Set(reflect.New(f.Type().Elem()))
		case reflect.Slice:
			f.Set(reflect.MakeSlice(f.Type(), 1, 1))
		case reflect.Map:
			f.Set(reflect.MakeMap(f.Type()))
			f.SetMapIndex(reflect.ValueOf(v1.ResourceCPU), reflect.ValueOf(resource.MustParse("1")))
		case reflect.String:
			f.SetString("x")
		default:
			f.SetInt(1)
		}
	}
	full.StartTime, full.Conditions = &metav1.Time{Time: time.Unix(1e9, 0)}, []v1.PodCondition{{Type: v1.PodReady}}
	own := reflect.ValueOf(ownPart(full, &full))
	merged := reflect.ValueOf(mergedStatus(full, v1.PodStatus{}, v1.PodStatus{}))
	it := item{server: &serverPod{status: full}, wantedStatus: &v1.PodStatus{}}
	_, _, data, err := it.compareStatus()
	if err != nil {
		t.Fatal(err)
	}
	for f := range reflect.TypeFor[v1.PodStatus]().Fields() {
		name := fieldtest.Name(f)
		_, verdict, found := strings.Cut(rows, "\n| "+name+" | ")
		isOwn := strings.HasPrefix(verdict, "filled")
		if !found || isOwn == own.FieldByIndex(f.Index).IsZero() || !isOwn && merged.FieldByIndex(f.Index).IsZero() {
			t.Errorf("the field %s is the node's: %t", name, isOwn)
		}
		kept := f.Name == "StartTime" || f.Name == "QOSClass" // the node does not change them
		if sent := bytes.Contains(data, []byte(`"`+name+`":`)); sent != (isOwn && !kept) {
			t.Errorf("the field %s is the node's: %t; the patch contains it: %t", name, isOwn, sent)
		}
	}
}
