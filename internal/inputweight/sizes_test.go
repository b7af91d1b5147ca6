package inputweight_test

import (
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/islet-edge/islet/internal/inputweight"
)

const mib = 1 << 20

// allocated returns how many bytes f allocates.
func allocated(f func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

func list(n int) *corev1.PodList {
	l := &corev1.PodList{}
	for range n {
		l.Items = append(l.Items, corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", Labels: map[string]string{"app": "web", "tier": "front"}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "c", Image: "registry.example/shop/web:1", Env: []corev1.EnvVar{{Name: "A", Value: "b"}},
				Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{}},
			}}},
		})
	}
	return l
}

// This map contains short inputs that would become large objects.
var jsonBombs = map[string]struct {
	text string
	into any
}{
	"empty items":         {`{"items":[` + strings.Repeat("{},", mib/3) + `{}]}`, &corev1.PodList{}},
	"null items":          {`{"items":[` + strings.Repeat("null,", mib/5) + `null]}`, &corev1.PodList{}},
	"null containers":     {`{"spec":{"containers":[` + strings.Repeat("null,", mib/5) + `null]}}`, &corev1.Pod{}},
	"another case":        {`{"SPEC":{"Containers":[` + strings.Repeat("null,", mib/5) + `null]}}`, &corev1.Pod{}},
	"escaped names":       {`{"spec":{"\u0063ontainers":[` + strings.Repeat("null,", mib/5) + `null]}}`, &corev1.Pod{}},
	"folded by Unicode":   {`{"\u017fpec":{"container\u017f":[` + strings.Repeat("null,", mib/5) + `null]}}`, &corev1.Pod{}},
	"map entries":         {`{"metadata":{"labels":{` + strings.Repeat(`"":"",`, mib/6) + `"":""}}}`, &corev1.Pod{}},
	"managed fields":      {`{"metadata":{"managedFields":[` + strings.Repeat("{},", mib/3) + `{}]}}`, &corev1.Pod{}},
	"a tree of arrays":    {`[` + strings.Repeat("[],", mib/3) + `[]]`, nil},
	"a tree of objects":   {`[` + strings.Repeat("{},", mib/3) + `{}]`, nil},
	"objects for scalars": {`[` + strings.Repeat(`{"a":0},`, mib/8) + `{}]`, nil},
}

// TestJSONBombs checks that a limit of 8 MiB rejects each bomb. A bomb has at most two MiB.
func TestJSONBombs(t *testing.T) {
	for name, b := range jsonBombs {
		t.Run(name, func(t *testing.T) {
			if len(b.text) > 2*mib {
				t.Fatalf("it has %d bytes", len(b.text))
			}
			var err error
			data := []byte(b.text)
			if took := allocated(func() { err = inputweight.JSON(data, b.into, 8*mib) }); !errors.Is(err, inputweight.ErrTooHeavy) || took > mib {
				t.Errorf("got %v with %d bytes of memory", err, took)
			}
		})
	}
	deep := strings.Repeat("[", 5000) + strings.Repeat("]", 5000)
	if err := inputweight.JSON([]byte(deep), nil, mib); !errors.Is(err, inputweight.ErrTooDeep) {
		t.Errorf("got %v", err)
	}
	if err := inputweight.JSON([]byte(`{"spec":`+deep+`}`), &corev1.Pod{}, mib); !errors.Is(err, inputweight.ErrTooDeep) {
		t.Errorf("got %v", err)
	}
	if err := inputweight.JSON([]byte(`{"spec":{"containers":[{]}}`), &corev1.Pod{}, mib); err != nil {
		t.Errorf("invalid JSON: %v", err)
	}
}

// field returns an encoded length-delimited field.
func field(number byte, value string) string {
	n := len(value)
	out := []byte{number<<3 | 2}
	for ; n >= 0x80; n >>= 7 {
		out = append(out, byte(n)|0x80)
	}
	return string(append(out, byte(n))) + value
}

// TestProtobufBombs checks that bombs in protobuf are rejected for both kinds of generated types.
func TestProtobufBombs(t *testing.T) {
	for name, b := range map[string]struct {
		data string
		into any
	}{
		"empty items":      {strings.Repeat(field(2, ""), mib/2), &corev1.PodList{}},
		"empty containers": {field(2, strings.Repeat(field(2, ""), mib/2)), &corev1.Pod{}},
		"map entries":      {field(1, strings.Repeat(field(11, ""), mib/2)), &corev1.Pod{}},
		"empty strings":    {field(1, strings.Repeat(field(14, ""), mib/2)), &corev1.Pod{}},
		"values of a map":  {field(2, field(4, field(2, strings.Repeat(field(1, ""), mib/2)))), &authenticationv1.TokenReviewStatus{}},
		"devices":          {strings.Repeat(field(1, ""), mib/2), &pluginapi.ListAndWatchResponse{}},
		"pointers":         {field(2, strings.Repeat(field(14, ""), mib/2)), &corev1.Pod{}},
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			data := []byte(b.data)
			took := allocated(func() { err = inputweight.Protobuf(data, b.into, 8*mib) })
			if !errors.Is(err, inputweight.ErrTooHeavy) || took > mib {
				t.Errorf("got %v with %d bytes of memory", err, took)
			}
		})
	}
	deep := ""
	for range 300 {
		deep = field(1, deep)
	}
	if err := inputweight.Protobuf([]byte(deep), &metav1.LabelSelector{}, mib); err != nil && !errors.Is(err, inputweight.ErrTooDeep) {
		t.Errorf("got %v", err)
	}
	if err := inputweight.Protobuf([]byte{0x12, 0x7f, 0}, &corev1.Pod{}, mib); err == nil {
		t.Error("a part of a message was accepted")
	}
}

// TestOneof checks that the weight of a member of a oneof is at least the memory of the member. The Go struct does not contain the type of
// the member, so package weight assumes the largest possible weight.
func TestOneof(t *testing.T) {
	for name, data := range map[string]string{
		"empty": strings.Repeat(field(1, field(1, "")), 10000), "with a value": strings.Repeat(field(1, field(1, "\x08\x01")), 10000),
		"of two": strings.Repeat(field(1, field(1, "")+field(2, "")), 10000),
	} {
		var err error
		took := allocated(func() { err = proto.Unmarshal([]byte(data), &csi.NodeGetCapabilitiesResponse{}) })
		if err != nil {
			t.Fatal(name, err)
		}
		weighed, err := inputweight.OfProtobuf([]byte(data), &csi.NodeGetCapabilitiesResponse{}, 100*mib)
		if err != nil || weighed < took*3/4 {
			t.Errorf("%s: it weighs %d and takes %d: %v", name, weighed, took, err)
		}
	}
}

// TestEstimate checks that the weight of ordinary objects is close to the memory that their decoding allocates. The weight is never much
// less, so a limit on the weight limits the memory.
func TestEstimate(t *testing.T) {
	l := list(500)
	asProtobuf, err := l.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	asJSON, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	// leastBound returns the smallest limit that accepts the object, with a precision of a tenth.
	leastBound := func(weigh func(most int64) error) int64 {
		most := int64(1000)
		for weigh(most) != nil {
			most += most / 10
		}
		return most
	}
	for name, c := range map[string]struct {
		weigh  func(most int64) error
		decode func()
	}{
		"protobuf": {
			func(most int64) error { return inputweight.Protobuf(asProtobuf, &corev1.PodList{}, most) },
			func() { _ = (&corev1.PodList{}).Unmarshal(asProtobuf) },
		},
		"JSON": {
			func(most int64) error { return inputweight.JSON(asJSON, &corev1.PodList{}, most) },
			func() { _ = json.Unmarshal(asJSON, &corev1.PodList{}) },
		},
		"a tree": {
			func(most int64) error { return inputweight.JSON(asJSON, nil, most) },
			func() { var tree any; _ = json.Unmarshal(asJSON, &tree) },
		},
	} {
		took, weighed := allocated(c.decode), leastBound(c.weigh)
		if weighed < took/4 || weighed > 4*took {
			t.Errorf("%s: it is estimated at %d bytes and takes %d", name, weighed, took)
		}
	}
	var has corev1.PodList
	if err := has.Unmarshal(asProtobuf); err != nil {
		t.Fatal(err)
	}
	if of, took := inputweight.SizeOf(&has), allocated(func() { _ = (&corev1.PodList{}).Unmarshal(asProtobuf) }); of < took/6 || of > 2*took {
		t.Errorf("the object's weight is %d and takes %d", of, took)
	}
}

// FuzzJSON checks that an accepted input uses at most a few times as much memory as the limit.
func FuzzJSON(f *testing.F) {
	for _, b := range jsonBombs {
		f.Add([]byte(b.text[:min(len(b.text), 200)]))
	}
	f.Add([]byte(`{"metadata":{"name":"a","labels":{"a":"b"}},"spec":{"containers":[{"name":"c","env":[{"name":"x"}]}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		const most = 64 << 10
		if inputweight.JSON(data, &corev1.Pod{}, most) != nil || len(data) > 8<<10 {
			return
		}
		took := allocated(func() { _ = json.Unmarshal(data, &corev1.Pod{}) })
		if took > 8*most {
			t.Errorf("%d bytes of memory", took)
		}
	})
}

// TestPEMBombs checks that many headers, many empty blocks and long texts are rejected. The certificates of a node must be accepted.
func TestPEMBombs(t *testing.T) {
	const begin, end = "-----BEGIN CERTIFICATE-----\n", "-----END CERTIFICATE-----\n"
	for name, text := range map[string]string{
		"headers": begin + strings.Repeat("a:\n", mib/3) + "\n" + end,
		"blocks":  strings.Repeat(begin+end, mib/len(begin+end)),
		"length":  begin + strings.Repeat(strings.Repeat("A", 64)+"\n", 9*mib/65) + end,
	} {
		var err error
		if took := allocated(func() { err = inputweight.PEM(4*mib, "", text) }); !errors.Is(err, inputweight.ErrTooHeavy) || took > mib {
			t.Errorf("%s: got %v with %d bytes of memory", name, err, took)
		}
	}
	chain := "subject: CN=a\n" + begin + strings.Repeat(strings.Repeat("A", 64)+"\n", 30) + end
	if err := inputweight.PEM(4*mib, strings.Repeat(chain, 200)); err != nil {
		t.Errorf("200 certificates: %v", err)
	}
}

// TestSizeOfTime checks that the location of a time has no weight. The local location is initialized by package time at its
// first use, so reading it is a race.
func TestSizeOfTime(t *testing.T) {
	type object struct{ At time.Time }
	utc, local := inputweight.SizeOf(&object{time.Now().UTC()}), inputweight.SizeOf(&object{time.Now()})
	named := inputweight.SizeOf(&object{time.Now().In(time.FixedZone("a long name of a zone", 3600))})
	if utc != local || utc != named {
		t.Errorf("%d bytes in UTC, %d in local time, %d in a named zone", utc, local, named)
	}
}
