package kubetest

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// A Server is an API server for a test. It answers requests without a handler with 404, and /readyz with ok.
type Server struct {
	*httptest.Server
	Mux *http.ServeMux // handlers, by "METHOD /path"
	CA  *CA
	// Authenticate reports whether to accept a request. A rejected request gets 401. It must be set before the first request, and may be
	// nil.
	Authenticate func(*http.Request) bool
	// Certificate is the server's certificate. It must be set before the first connection. If it is nil, the CA signs one.
	Certificate *tls.Certificate

	line   *Line
	scheme *runtime.Scheme
	codecs serializer.CodecFactory
}

// New starts a server that knows the types of the given registrations, such as corev1.AddToScheme. The server ends with the test.
func New(t testing.TB, register ...func(*runtime.Scheme) error) *Server {
	t.Helper()
	return start(t, nil, register)
}

// NewOn is like New, but the server listens on a Line. The configuration that RESTConfig returns then dials the Line.
func NewOn(t testing.TB, line *Line, register ...func(*runtime.Scheme) error) *Server {
	t.Helper()
	return start(t, line, register)
}

func start(t testing.TB, line *Line, register []func(*runtime.Scheme) error) *Server {
	t.Helper()
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	for _, r := range append(register, metav1.AddMetaToScheme) {
		if err := r(scheme); err != nil {
			t.Fatal(err)
		}
	}
	s := &Server{Mux: http.NewServeMux(), CA: NewCA(t), scheme: scheme, codecs: serializer.NewCodecFactory(scheme)}
	s.Mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.Authenticate != nil && !s.Authenticate(r) {
			s.WriteError(w, r, apierrors.NewUnauthorized("Unauthorized"))
			return
		}
		s.Mux.ServeHTTP(w, r)
	}))
	if line != nil {
		_ = s.Listener.Close()
		s.Listener, s.line = line, line
	}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{
		Certificates: []tls.Certificate{s.CA.Server(t, time.Now(), "127.0.0.1")},
		// The certificate is checked by the handler, not during the TLS handshake, because an API server answers an invalid certificate
		// with 401.
		ClientAuth: tls.RequestClientCert,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			if s.Certificate == nil {
				return nil, nil
			}
			c := s.TLS.Clone()
			c.Certificates = []tls.Certificate{*s.Certificate}
			return c, nil
		},
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// RESTConfig returns a configuration that trusts the server. It has no credentials.
func (s *Server) RESTConfig() *rest.Config {
	cfg := &rest.Config{Host: s.URL, TLSClientConfig: rest.TLSClientConfig{CAData: s.CA.PEM}}
	if s.line != nil {
		cfg.Dial = s.line.Dial
	}
	return cfg
}

// Write answers a request with an object, or with an error in the form of an API server.
func (s *Server) Write(w http.ResponseWriter, r *http.Request, status int, obj runtime.Object) {
	info := s.chooseSerializer(r.Header.Get("Accept"))
	w.Header().Set("Content-Type", info.MediaType)
	w.WriteHeader(status)
	obj = AcceptedForm(r, obj)
	_ = s.codecs.EncoderForVersion(info.Serializer, s.versionFor(obj)).Encode(obj, w)
}

// AcceptedForm returns the whole object, or only its metadata, depending on the Accept header of the request.
func AcceptedForm(r *http.Request, obj runtime.Object) runtime.Object {
	o, ok := obj.(metav1.Object)
	if !ok || !strings.Contains(r.Header.Get("Accept"), ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1") {
		return obj
	}
	out := meta.AsPartialObjectMetadata(o)
	out.TypeMeta = metav1.TypeMeta{APIVersion: metav1.SchemeGroupVersion.String(), Kind: "PartialObjectMetadata"}
	return out
}

// WriteError answers a request with the status of an error.
func (s *Server) WriteError(w http.ResponseWriter, r *http.Request, err error) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		status = apierrors.NewInternalError(err)
	}
	body := status.Status()
	s.Write(w, r, int(body.Code), &body)
}

// Read decodes the body of a request.
func (s *Server) Read(r *http.Request) (runtime.Object, error) {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	obj, _, err := s.codecs.UniversalDeserializer().Decode(data, nil, nil)
	return obj, err
}

// Watch answers a watch with events. It returns when the channel is closed or the client has disconnected.
func (s *Server) Watch(w http.ResponseWriter, r *http.Request, events <-chan watch.Event) {
	info := s.chooseSerializer(r.Header.Get("Accept"))
	w.Header().Set("Content-Type", info.MediaType+";stream=watch")
	w.WriteHeader(http.StatusOK)
	frames := info.StreamSerializer.NewFrameWriter(w)
	flush := http.NewResponseController(w)
	for {
		_ = flush.Flush()
		select {
		case <-r.Context().Done():
			return
		case e, ok := <-events:
			if !ok {
				return
			}
			obj := AcceptedForm(r, e.Object)
			raw, err := runtime.Encode(s.codecs.EncoderForVersion(info.Serializer, s.versionFor(obj)), obj)
			if err != nil {
				return
			}
			frame := &metav1.WatchEvent{Type: string(e.Type), Object: runtime.RawExtension{Raw: raw}}
			encoder := s.codecs.EncoderForVersion(info.StreamSerializer.Serializer, schema.GroupVersion{Version: "v1"})
			if err := encoder.Encode(frame, frames); err != nil {
				return
			}
		}
	}
}

func (s *Server) chooseSerializer(accept string) runtime.SerializerInfo {
	types := s.codecs.SupportedMediaTypes()
	media := runtime.ContentTypeJSON
	if len(accept) >= len(runtime.ContentTypeProtobuf) && accept[:len(runtime.ContentTypeProtobuf)] == runtime.ContentTypeProtobuf {
		media = runtime.ContentTypeProtobuf
	}
	info, _ := runtime.SerializerInfoForMediaType(types, media)
	return info
}

// Subject returns the name and groups of a request's client certificate. It returns false if the CA has not signed the certificate, or if
// the certificate is not valid at the given time.
func (s *Server) Subject(r *http.Request, now time.Time) (name string, groups []string, ok bool) {
	if len(r.TLS.PeerCertificates) == 0 {
		return "", nil, false
	}
	cert := r.TLS.PeerCertificates[0]
	usages := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	_, err := cert.Verify(x509.VerifyOptions{Roots: s.CA.Pool(), CurrentTime: now, KeyUsages: usages})
	return cert.Subject.CommonName, cert.Subject.Organization, err == nil
}

// versionFor returns the group and version in which an object is encoded.
func (s *Server) versionFor(obj runtime.Object) runtime.GroupVersioner {
	if kinds, _, err := s.scheme.ObjectKinds(obj); err == nil {
		return kinds[0].GroupVersion()
	}
	return runtime.InternalGroupVersioner
}
