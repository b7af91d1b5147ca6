package exposition

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"net/http/httptest"
	"reflect"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// fillRandomly sets some fields of v to random values, and leaves the other fields empty.
func fillRandomly(v reflect.Value, some *rand.Rand) {
	switch v.Type() {
	case reflect.TypeFor[metav1.Time]():
		if some.IntN(4) > 0 {
			v.Set(reflect.ValueOf(metav1.NewTime(time.Unix(some.Int64N(1<<33), some.Int64N(1e9)))))
		}
		return
	case reflect.TypeFor[[]stats.AcceleratorStats](), reflect.TypeFor[[]stats.UserDefinedMetric](): // this node has no such statistics
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if some.IntN(4) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fillRandomly(v.Elem(), some)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			fillRandomly(v.Field(i), some)
		}
	case reflect.Slice:
		if n := some.IntN(5); n > 0 {
			v.Set(reflect.MakeSlice(v.Type(), n-1, n))
		}
		for i := range v.Len() {
			fillRandomly(v.Index(i), some)
		}
	case reflect.String:
		v.SetString([]string{"", "plain-name_1.x", `quo"te\`, "<&>", "é\u2028\n\x00", "\xff"}[some.IntN(6)])
	case reflect.Uint64:
		v.SetUint(some.Uint64() >> some.IntN(64))
	case reflect.Int64:
		v.SetInt(some.Int64() >> some.IntN(64))
	case reflect.Float64:
		v.SetFloat([]float64{0, 0.03, 100, 1e-9, 1e300, 12.34}[some.IntN(6)])
	case reflect.Bool:
		v.SetBool(some.IntN(2) > 0)
	}
}

// TestServeSummary checks that any summary is written exactly as encoding/json writes it, also in parts.
func TestServeSummary(t *testing.T) {
	for seed := range uint64(300) {
		some := rand.New(rand.NewPCG(seed, 1))
		var s stats.Summary
		fillRandomly(reflect.ValueOf(&s).Elem(), some)
		if seed%50 == 0 {
			for range 200 {
				var p stats.PodStats
				fillRandomly(reflect.ValueOf(&p).Elem(), some)
				s.Pods = append(s.Pods, p)
			}
		}
		if len(s.Pods) == 0 {
			s.Pods = nil
		}
		want, err := json.Marshal(&s)
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		ServeSummary(w, &Summary{Node: s.Node, Pods: func(yield func(*stats.PodStats) bool) {
			var one stats.PodStats
			for _, one = range s.Pods {
				if !yield(&one) {
					return
				}
			}
		}})
		if got := w.Body.Bytes(); !bytes.Equal(got, append(want, '\n')) {
			at := sameUpTo(got, want)
			t.Fatalf("seed %d: other from %d\n got %.200q\nwant %.200q", seed, at, got[max(0, at-50):], want[max(0, at-50):])
		}
	}
}
