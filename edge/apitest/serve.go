package apitest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sort"
	"strconv"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/islet-edge/islet/edge/kube/kubetest"
)

// parse reads /api/v1/[namespaces/NS/]RESOURCE[/NAME[/SUBRESOURCE]].
func parse(path string) (k key, sub string) {
	part := strings.Split(strings.Trim(path, "/"), "/")
	if part[0] == "apis" {
		part = part[1:]
	}
	part = part[2:]
	if part[0] == "namespaces" && len(part) > 2 {
		k.namespace = part[1]
		part = part[2:]
	}
	k.resource = part[0]
	if len(part) > 1 {
		k.name = part[1]
	}
	if len(part) > 2 {
		sub = "/" + part[2]
	}
	return k, sub
}

// certificateVersion returns the API version in the path of a request for the group certificates.k8s.io. It returns false if the path
// belongs to another group.
func certificateVersion(r *http.Request) (version string, asked bool) {
	rest, asked := strings.CutPrefix(r.URL.Path, "/apis/"+certificatesv1.GroupName+"/")
	version, _, _ = strings.Cut(rest, "/")
	return version, asked
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/readyz" {
		if f := s.Fault.Load(); f == nil || !(*f)(w, r) {
			_, _ = io.WriteString(w, "ok")
		}
		return
	}
	k, sub := parse(r.URL.Path)
	if v, asked := certificateVersion(r); asked && k.resource != "certificatesigningrequests" && (v == "v1beta1") != s.Former.Load() {
		http.NotFound(w, r)
		return
	}
	verb := r.Method
	watching := r.URL.Query().Get("watch") == "true"
	if watching {
		verb = "WATCH"
	} else if verb == http.MethodGet && k.name == "" {
		verb = "LIST"
	}
	s.mu.Lock()
	s.requests[verb+" "+k.resource+sub]++
	if watching && streamsList(r) { // the watch replaces a list
		s.requests["LIST "+k.resource+sub]++
	}
	s.mu.Unlock()
	if f := s.Fault.Load(); f != nil && (*f)(w, r) {
		return
	}
	if watching {
		s.watch(w, r, k)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		s.WriteError(w, r, err)
		return
	}
	out, err := s.execute(r, verb, k, sub, body)
	if err != nil {
		s.WriteError(w, r, err)
		return
	}
	s.write(w, r, http.StatusOK, out)
}

// execute executes a request and returns a copy of the resulting object, because encoding modifies objects.
func (s *Server) execute(r *http.Request, verb string, k key, sub string, body []byte) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out, err := s.changeObject(r, verb, k, sub, body)
	if err != nil {
		return nil, err
	}
	return out.DeepCopyObject(), nil
}

func (s *Server) changeObject(r *http.Request, verb string, k key, sub string, body []byte) (runtime.Object, error) {
	old, found := s.objects[k]
	if !found && k.name != "" {
		return nil, notFound(k)
	}
	switch verb {
	case "LIST":
		return s.list(r, k)
	case http.MethodGet:
		return old, nil
	case http.MethodPost:
		return s.create(k, body)
	case http.MethodPatch:
		return s.patch(k, old, body)
	case http.MethodDelete:
		o := &metav1.DeleteOptions{}
		if err := s.decode(body, o); err != nil {
			return nil, err
		}
		if p := o.Preconditions; p != nil && p.UID != nil && *p.UID != old.GetUID() {
			return nil, apierrors.NewConflict(groupResource(k.resource), k.name, errors.New("the UID in the precondition does not match"))
		}
		s.delete(k, o.GracePeriodSeconds)
		return &metav1.Status{Status: metav1.StatusSuccess}, nil
	}
	return nil, apierrors.NewMethodNotSupported(groupResource(k.resource), verb+sub)
}

func (s *Server) decode(data []byte, into runtime.Object) error {
	_, _, err := s.codecs.UniversalDeserializer().Decode(data, nil, into)
	return err
}

func (s *Server) create(k key, body []byte) (runtime.Object, error) {
	o, _ := kindOf(k.resource)
	if err := s.decode(body, o); err != nil {
		return nil, err
	}
	k = keyOf(o)
	if _, found := s.objects[k]; found {
		return nil, apierrors.NewAlreadyExists(groupResource(k.resource), k.name)
	}
	o.SetUID("")
	s.put(k, o)
	return o, nil
}

func (s *Server) patch(k key, old object, body []byte) (runtime.Object, error) {
	before, err := json.Marshal(old)
	if err != nil {
		return nil, err
	}
	o, _ := kindOf(k.resource)
	after, err := strategicpatch.StrategicMergePatch(before, body, o)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if err := json.Unmarshal(after, o); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if o.GetUID() != old.GetUID() || o.GetResourceVersion() != old.GetResourceVersion() {
		return nil, apierrors.NewConflict(groupResource(k.resource), k.name,
			errors.New("the UID or version in the precondition does not match"))
	}
	if m := o.GetManagedFields(); len(m) == 1 && m[0] == (metav1.ManagedFieldsEntry{}) {
		o.SetManagedFields(nil) // the patch clears the managed fields
	}
	if again, err := json.Marshal(o); err == nil && string(again) == string(before) {
		return old, nil // an unchanged object is not written, as in a real server
	}
	s.put(k, o)
	return o, nil
}

// belongsTo reports whether an object belongs to the requested resource and namespace.
func belongsTo(at, asked key) bool {
	return at.resource == asked.resource && (asked.namespace == "" || at.namespace == asked.namespace)
}

func (s *Server) watch(w http.ResponseWriter, r *http.Request, k key) {
	text := r.URL.Query().Get("resourceVersion")
	since, err := strconv.ParseInt(text, 10, 64)
	scope := topicOf(r, k.resource)
	var initial []change // the initial events of a watch without a version
	if text == "" {
		since, initial, err = s.presentState(r, k)
	}
	if streamsList(r) && s.NoWatchList.Load() {
		err = apierrors.NewInvalid(metav1.SchemeGroupVersion.WithKind("ListOptions").GroupKind(), "", nil)
	}
	if !isWatchable(k.resource) {
		err = apierrors.NewMethodNotSupported(groupResource(k.resource), "watch")
	}
	s.mu.Lock()
	if err == nil && since < s.compacted {
		err = apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", since, s.compacted))
	}
	s.mu.Unlock()
	if err != nil {
		s.WriteError(w, r, err)
		return
	}
	info := s.chooseSerializer(r)
	w.Header().Set("Content-Type", info.MediaType+";stream=watch")
	out := newStream(w, r)
	frames := info.StreamSerializer.NewFrameWriter(out)
	if streamsList(r) {
		initial = append(initial, change{version: since, event: watch.Bookmark, key: endOfList})
	}
	for _, c := range initial {
		if err := s.writeFrame(r, frames, info, k, c); err != nil {
			return
		}
	}
	for {
		s.mu.Lock()
		changed, log := s.nextChange(scope), s.log[scope]
		fresh := log[sort.Search(len(log), func(i int) bool { return log[i].version > since }):]
		s.mu.Unlock()
		for _, c := range fresh {
			if c.version <= since || c.event != watch.Bookmark && !belongsTo(c.key, k) {
				continue
			}
			since = c.version
			if err := s.writeFrame(r, frames, info, k, c); err != nil {
				return
			}
		}
		out.flush()
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		}
	}
}

// presentState returns the current version, and an event of type Added for each object that a watch selects.
func (s *Server) presentState(r *http.Request, k key) (version int64, initial []change, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.selectObjects(r, k) {
		o, is := o.(object)
		if !is {
			return 0, nil, fmt.Errorf("%T is not an API object", o)
		}
		initial = append(initial, change{s.version, watch.Added, keyOf(o), o})
	}
	return s.version, initial, nil
}

func (s *Server) writeFrame(r *http.Request, to io.Writer, info runtime.SerializerInfo, k key, c change) error {
	o, kind := kindOf(k.resource)
	if c.event == watch.Bookmark {
		o.SetResourceVersion(strconv.FormatInt(c.version, 10))
		if c.key == endOfList {
			o.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		}
	} else {
		o = c.object.DeepCopyObject().(object)
	}
	raw, err := s.encode(r, info.Serializer, kind.GroupVersion(), o)
	if err != nil {
		return err
	}
	e := &metav1.WatchEvent{Type: string(c.event), Object: runtime.RawExtension{Raw: raw}}
	return s.codecs.EncoderForVersion(info.StreamSerializer.Serializer, v1.SchemeGroupVersion).Encode(e, to)
}

// NeverAnswer is a Fault that reads requests and never answers.
func NeverAnswer(_ http.ResponseWriter, r *http.Request) bool {
	_, _ = io.Copy(io.Discard, r.Body) // needed, because the server detects a disconnect only after it has read the body
	<-r.Context().Done()
	return true
}

// WriteError answers with an error in the form of an API server.
func (s *Server) WriteError(w http.ResponseWriter, r *http.Request, err error) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		status = apierrors.NewInternalError(err)
	}
	body := status.Status()
	if d := body.Details; d != nil && d.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(d.RetryAfterSeconds)))
	}
	s.write(w, r, int(body.Code), &body)
}

func (s *Server) write(w http.ResponseWriter, r *http.Request, status int, o runtime.Object) {
	info := s.chooseSerializer(r)
	w.Header().Set("Content-Type", info.MediaType)
	w.WriteHeader(status)
	gv := v1.SchemeGroupVersion
	switch o.(type) {
	case *nodev1.RuntimeClassList:
		gv = nodev1.SchemeGroupVersion
	case *storagev1.CSIDriverList:
		gv = storagev1.SchemeGroupVersion
	case *certificatesv1.ClusterTrustBundleList, *certificatesv1.PodCertificateRequestList:
		gv = certificatesv1.SchemeGroupVersion
	}
	if stored, ok := o.(object); ok {
		if _, kind := kindOf(resourceOf(stored)); kind != (schema.GroupVersionKind{}) {
			gv = kind.GroupVersion()
		}
	}
	data, _ := s.encode(r, info.Serializer, gv, o)
	_, _ = w.Write(data)
}

// encode encodes an object in the form that the request accepts.
func (s *Server) encode(r *http.Request, as runtime.Serializer, gv schema.GroupVersion, o runtime.Object) ([]byte, error) {
	shown := kubetest.AcceptedForm(r, o)
	if v, asked := certificateVersion(r); asked && gv.Group == certificatesv1.GroupName {
		gv.Version = v
	}
	if shown != o {
		gv = metav1.SchemeGroupVersion
	}
	return runtime.Encode(s.codecs.EncoderForVersion(as, gv), shown)
}

func (s *Server) chooseSerializer(r *http.Request) runtime.SerializerInfo {
	media := runtime.ContentTypeJSON
	if strings.HasPrefix(r.Header.Get("Accept"), runtime.ContentTypeProtobuf) {
		media = runtime.ContentTypeProtobuf
	}
	info, _ := runtime.SerializerInfoForMediaType(s.codecs.SupportedMediaTypes(), media)
	return info
}
