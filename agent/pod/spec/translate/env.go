package translate

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/podspec"
)

// Objects returns other objects to which a pod refers. If an object does not exist, apierrors.IsNotFound is true for
// the error.
type Objects interface {
	ConfigMap(pod *v1.Pod, name string) (*v1.ConfigMap, error)
	Secret(pod *v1.Pod, name string) (*v1.Secret, error)
	// Services returns at least the services from which the pod's environment variables are made.
	Services(pod *v1.Pod) ([]v1.Service, error)
}

// NoObjects implements Objects for a node without an API server: no object exists.
type NoObjects struct{}

// ConfigMap returns a not-found error.
func (NoObjects) ConfigMap(_ *v1.Pod, name string) (*v1.ConfigMap, error) {
	return nil, noObject("configmap", name)
}

// Secret returns a not-found error.
func (NoObjects) Secret(_ *v1.Pod, name string) (*v1.Secret, error) {
	return nil, noObject("secret", name)
}

// Services returns no services.
func (NoObjects) Services(*v1.Pod) ([]v1.Service, error) { return nil, nil }

func noObject(kind, name string) error {
	return fmt.Errorf("%w: this node has no apiserver to fetch it from", apierrors.NewNotFound(v1.Resource(kind), name))
}

// environ is the environment of a container while it is built. A later definition of a variable replaces an earlier
// one and keeps the earlier one's position.
type environ struct {
	names    []string
	values   map[string]string
	services map[string]string // variables that the pod does not have to define
}

func (e *environ) set(name, value string) {
	if _, ok := e.values[name]; !ok {
		e.names = append(e.names, name)
	}
	e.values[name] = value
}

func (e *environ) lookUp(name string) (string, bool) {
	if v, ok := e.values[name]; ok {
		return v, true
	}
	v, ok := e.services[name]
	return v, ok
}

func (e *environ) keyValues() []*api.KeyValue {
	var out []*api.KeyValue
	for _, n := range e.names {
		out = append(out, &api.KeyValue{Key: n, Value: []byte(e.values[n])})
	}
	return out
}

// buildEnvironment evaluates envFrom and then env, and adds the variables for services.
// https://kubernetes.io/docs/tasks/inject-data-application/define-environment-variable-container/
func buildEnvironment(pod *v1.Pod, ctr *v1.Container, n Node, objects Objects, files Files) (*environ, error) {
	services, err := serviceVariables(pod, objects)
	if err != nil {
		return nil, err
	}
	e := &environ{values: map[string]string{}, services: services}
	for _, src := range ctr.EnvFrom {
		data, err := envFrom(pod, src, objects)
		if err != nil {
			return nil, err
		}
		for _, k := range slices.Sorted(maps.Keys(data)) {
			e.set(src.Prefix+k, data[k])
		}
	}
	return e, e.evaluate(pod, ctr, n, objects, files)
}

// environmentAfter is used while the API server does not respond. It copies the variables that depend on
// objects from the environment of the container's last attempt. It evaluates all other variables again.
func environmentAfter(before []*api.KeyValue, pod *v1.Pod, ctr *v1.Container, n Node, files Files) (*environ, error) {
	e := &environ{values: map[string]string{}, services: map[string]string{}}
	for _, kv := range before {
		e.services[kv.Key] = string(kv.Value)
	}
	return e, e.evaluate(pod, ctr, n, nil, files)
}

// evaluate sets the variables of the container's field env. It then adds the variables of e.services that this
// field does not define. If the parameter objects is nil, the values of variables that refer to a ConfigMap or
// Secret also come from e.services.
func (e *environ) evaluate(pod *v1.Pod, ctr *v1.Container, n Node, objects Objects, files Files) error {
	for i := range ctr.Env {
		v := &ctr.Env[i]
		switch from := v.ValueFrom; {
		case from == nil:
			e.set(v.Name, Expand(v.Value, e.lookUp))
			continue
		case objects == nil && (from.ConfigMapKeyRef != nil || from.SecretKeyRef != nil):
			continue
		}
		value, ok, err := valueFrom(pod, ctr, v.ValueFrom, n, objects, files)
		switch {
		case err == nil:
		case v.ValueFrom.ConfigMapKeyRef != nil, v.ValueFrom.SecretKeyRef != nil:
			return err // the message of a kubelet, which tools match
		default:
			return fmt.Errorf("environment variable %s: %w", v.Name, err)
		}
		if ok {
			e.set(v.Name, value)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.services)) {
		if _, ok := e.values[name]; !ok {
			e.set(name, e.services[name])
		}
	}
	return nil
}

// isUnreached reports whether an object is unknown because the API server does not respond.
func isUnreached(err error) bool {
	var u interface{ Unreached() bool }
	return errors.As(err, &u) && u.Unreached()
}

func envFrom(pod *v1.Pod, src v1.EnvFromSource, objects Objects) (map[string]string, error) {
	switch {
	case src.ConfigMapRef != nil:
		m, err := objects.ConfigMap(pod, src.ConfigMapRef.Name)
		if isOptionalMissing(err, src.ConfigMapRef.Optional) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
		return m.Data, nil
	case src.SecretRef != nil:
		s, err := objects.Secret(pod, src.SecretRef.Name)
		if isOptionalMissing(err, src.SecretRef.Optional) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
		out := map[string]string{}
		for k, v := range s.Data {
			out[k] = string(v)
		}
		return out, nil
	}
	return nil, nil
}

func isOptionalMissing(err error, optional *bool) bool {
	return apierrors.IsNotFound(err) && podspec.IsTrue(optional)
}

// valueFrom returns false for an optional reference to an object or key that does not exist.
func valueFrom(pod *v1.Pod, ctr *v1.Container, src *v1.EnvVarSource, n Node, objects Objects, files Files) (string, bool, error) {
	switch {
	case src.FieldRef != nil:
		v, err := Field(pod, src.FieldRef.FieldPath, n)
		return v, err == nil, err
	case src.ResourceFieldRef != nil:
		v, err := ResourceField(pod, ctr, src.ResourceFieldRef, n)
		return v, err == nil, err
	case src.ConfigMapKeyRef != nil:
		r := src.ConfigMapKeyRef
		m, err := objects.ConfigMap(pod, r.Name)
		if err != nil {
			return "", false, unlessMissing(err, r.Optional)
		}
		v, ok := m.Data[r.Key]
		return v, ok, keyError(ok, r.Optional, r.Key, "ConfigMap", pod.Namespace, r.Name)
	case src.SecretKeyRef != nil:
		r := src.SecretKeyRef
		s, err := objects.Secret(pod, r.Name)
		if err != nil {
			return "", false, unlessMissing(err, r.Optional)
		}
		v, ok := s.Data[r.Key]
		return string(v), ok, keyError(ok, r.Optional, r.Key, "Secret", pod.Namespace, r.Name)
	case src.FileKeyRef != nil:
		return fileValue(pod, src.FileKeyRef, files)
	}
	return "", false, errors.New("its valueFrom is of a kind that this node does not know")
}

func unlessMissing(err error, optional *bool) error {
	if isOptionalMissing(err, optional) {
		return nil
	}
	return err
}

func keyError(found bool, optional *bool, key, kind, namespace, name string) error {
	if found || podspec.IsTrue(optional) {
		return nil
	}
	return fmt.Errorf("couldn't find key %s in %s %s/%s", key, kind, namespace, name)
}
