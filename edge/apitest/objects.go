package apitest

import (
	"fmt"
	"strconv"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// An object is an API object of one of the types that the server stores.
type object interface {
	metav1.Object
	runtime.Object
}

type key struct{ resource, namespace, name string }

type change struct {
	version int64
	event   watch.EventType
	key     key
	object  object
}

// Pod returns a copy of a pod, or nil.
func (s *Server) Pod(namespace, name string) *v1.Pod {
	p, _ := s.get(key{"pods", namespace, name}).(*v1.Pod)
	return p
}

// Node returns a copy of a node, or nil.
func (s *Server) Node(name string) *v1.Node {
	n, _ := s.get(key{resource: "nodes", name: name}).(*v1.Node)
	return n
}

// Lease returns a copy of a lease, or nil.
func (s *Server) Lease(namespace, name string) *coordinationv1.Lease {
	l, _ := s.get(key{"leases", namespace, name}).(*coordinationv1.Lease)
	return l
}

// CSINode returns a copy of a CSINode, or nil.
func (s *Server) CSINode(name string) *storagev1.CSINode {
	n, _ := s.get(key{resource: "csinodes", name: name}).(*storagev1.CSINode)
	return n
}

// Events returns copies of all events.
func (s *Server) Events() (list []*v1.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, o := range s.objects {
		if e, ok := o.(*v1.Event); ok && k.resource == "events" {
			list = append(list, e.DeepCopy())
		}
	}
	return list
}

// Pods returns copies of all pods.
func (s *Server) Pods() (list []*v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.objects {
		if p, ok := o.(*v1.Pod); ok {
			list = append(list, p.DeepCopy())
		}
	}
	return list
}

func (s *Server) get(k key) object {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o, ok := s.objects[k]; ok {
		return o.DeepCopyObject().(object)
	}
	return nil
}

// Put creates or replaces an object.
func (s *Server) Put(o object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(keyOf(o), o.DeepCopyObject().(object))
}

// Remove removes an object immediately, without a grace period.
func (s *Server) Remove(o object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deleteNow(keyOf(o))
}

// Terminate deletes an object with a grace period, like a DELETE request.
func (s *Server) Terminate(o object, grace int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delete(keyOf(o), &grace)
}

// Compact discards the recorded changes. After that, a watch from an earlier version fails with 410, and so does a request for the next
// page of a list.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.log)
	clear(s.pages)
	s.compacted = s.version
}

// A Snapshot is a backup of a Server's objects.
type Snapshot struct {
	version, compacted int64
	objects            map[key]object
}

// Snapshot returns a backup.
func (s *Server) Snapshot() *Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := &Snapshot{version: s.version, compacted: s.compacted, objects: map[key]object{}}
	for k, o := range s.objects {
		b.objects[k] = o.DeepCopyObject().(object)
	}
	return b
}

// Restore restores a backup, including its resource versions, as if the etcd of a control plane was restored. It breaks all connections.
// The current version becomes higher than the version of the backup by the given number, as if other objects had changed since the backup.
func (s *Server) Restore(b *Snapshot, others int64) {
	s.mu.Lock()
	s.version, s.compacted = b.version+others, b.compacted
	for k := range s.objects {
		s.removeObject(k)
	}
	clear(s.log)
	clear(s.pages)
	for k, o := range b.objects {
		s.putObject(k, o.DeepCopyObject().(object))
	}
	for scope := range s.changed {
		s.wakeWatches(scope)
	}
	s.mu.Unlock()
	s.CloseConnections()
}

// Bookmark sends a bookmark to all watches.
func (s *Server) Bookmark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	for scope := range s.log {
		s.appendChange(scope, change{s.version, watch.Bookmark, key{}, nil})
	}
}

// The methods below require mu.

func (s *Server) put(k key, o object) {
	s.version++
	event := watch.Added
	if old, ok := s.objects[k]; ok {
		event = watch.Modified
		if o.GetUID() == "" {
			o.SetUID(old.GetUID())
		}
	}
	if o.GetUID() == "" {
		o.SetUID(types.UID(fmt.Sprintf("uid-%d", s.version)))
	}
	if at := o.GetCreationTimestamp(); at.IsZero() {
		o.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))
	}
	o.SetResourceVersion(strconv.FormatInt(s.version, 10))
	s.putObject(k, o)
	s.recordChange(change{s.version, event, k, o})
}

func (s *Server) deleteNow(k key) {
	o, ok := s.objects[k]
	if !ok {
		return
	}
	s.version++
	o = o.DeepCopyObject().(object)
	o.SetResourceVersion(strconv.FormatInt(s.version, 10))
	s.removeObject(k)
	s.recordChange(change{s.version, watch.Deleted, k, o})
}

func (s *Server) delete(k key, grace *int64) {
	p, ok := s.objects[k].(*v1.Pod)
	switch {
	case !ok || p.Spec.NodeName == "":
		s.deleteNow(k)
	default:
		p = p.DeepCopy()
		seconds := int64(30)
		if p.Spec.TerminationGracePeriodSeconds != nil {
			seconds = *p.Spec.TerminationGracePeriodSeconds
		}
		if grace != nil {
			seconds = *grace
		}
		p.DeletionTimestamp = &metav1.Time{Time: time.Now().Add(time.Duration(seconds) * time.Second).Truncate(time.Second)}
		p.DeletionGracePeriodSeconds = &seconds
		s.put(k, p)
		if seconds == 0 { // first set the deletion time, as a real server does
			s.deleteNow(k)
		}
	}
}

func keyOf(o object) key {
	return key{resourceOf(o), o.GetNamespace(), o.GetName()}
}

func resourceOf(o runtime.Object) string {
	switch o.(type) {
	case *v1.Pod:
		return "pods"
	case *v1.Node:
		return "nodes"
	case *v1.Event:
		return "events"
	case *v1.ConfigMap:
		return "configmaps"
	case *v1.Secret:
		return "secrets"
	case *v1.Service:
		return "services"
	case *coordinationv1.Lease:
		return "leases"
	case *nodev1.RuntimeClass:
		return "runtimeclasses"
	case *v1.PersistentVolumeClaim:
		return "persistentvolumeclaims"
	case *v1.PersistentVolume:
		return "persistentvolumes"
	case *storagev1.CSINode:
		return "csinodes"
	case *storagev1.CSIDriver:
		return "csidrivers"
	case *storagev1.VolumeAttachment:
		return "volumeattachments"
	case *v1.ServiceAccount:
		return "serviceaccounts"
	case *certificatesv1.ClusterTrustBundle:
		return "clustertrustbundles"
	case *certificatesv1.PodCertificateRequest:
		return "podcertificaterequests"
	}
	return ""
}

func kindOf(resource string) (object, schema.GroupVersionKind) {
	switch resource {
	case "pods":
		return &v1.Pod{}, v1.SchemeGroupVersion.WithKind("Pod")
	case "nodes":
		return &v1.Node{}, v1.SchemeGroupVersion.WithKind("Node")
	case "configmaps":
		return &v1.ConfigMap{}, v1.SchemeGroupVersion.WithKind("ConfigMap")
	case "secrets":
		return &v1.Secret{}, v1.SchemeGroupVersion.WithKind("Secret")
	case "services":
		return &v1.Service{}, v1.SchemeGroupVersion.WithKind("Service")
	case "events":
		return &v1.Event{}, v1.SchemeGroupVersion.WithKind("Event")
	case "leases":
		return &coordinationv1.Lease{}, coordinationv1.SchemeGroupVersion.WithKind("Lease")
	case "runtimeclasses":
		return &nodev1.RuntimeClass{}, nodev1.SchemeGroupVersion.WithKind("RuntimeClass")
	case "persistentvolumeclaims":
		return &v1.PersistentVolumeClaim{}, v1.SchemeGroupVersion.WithKind("PersistentVolumeClaim")
	case "persistentvolumes":
		return &v1.PersistentVolume{}, v1.SchemeGroupVersion.WithKind("PersistentVolume")
	case "csinodes":
		return &storagev1.CSINode{}, storagev1.SchemeGroupVersion.WithKind("CSINode")
	case "csidrivers":
		return &storagev1.CSIDriver{}, storagev1.SchemeGroupVersion.WithKind("CSIDriver")
	case "volumeattachments":
		return &storagev1.VolumeAttachment{}, storagev1.SchemeGroupVersion.WithKind("VolumeAttachment")
	case "serviceaccounts":
		return &v1.ServiceAccount{}, v1.SchemeGroupVersion.WithKind("ServiceAccount")
	case "clustertrustbundles":
		return &certificatesv1.ClusterTrustBundle{}, certificatesv1.SchemeGroupVersion.WithKind("ClusterTrustBundle")
	case "podcertificaterequests":
		return &certificatesv1.PodCertificateRequest{}, certificatesv1.SchemeGroupVersion.WithKind("PodCertificateRequest")
	}
	return nil, schema.GroupVersionKind{}
}

// listOf returns an empty list of a resource.
func listOf(resource string) runtime.Object {
	switch resource {
	case "nodes":
		return &v1.NodeList{}
	case "configmaps":
		return &v1.ConfigMapList{}
	case "secrets":
		return &v1.SecretList{}
	case "services":
		return &v1.ServiceList{}
	case "runtimeclasses":
		return &nodev1.RuntimeClassList{}
	case "csidrivers":
		return &storagev1.CSIDriverList{}
	case "clustertrustbundles":
		return &certificatesv1.ClusterTrustBundleList{}
	case "podcertificaterequests":
		return &certificatesv1.PodCertificateRequestList{}
	}
	return &v1.PodList{}
}

func groupResource(resource string) schema.GroupResource {
	_, kind := kindOf(resource)
	return schema.GroupResource{Group: kind.Group, Resource: resource}
}

func notFound(k key) error { return apierrors.NewNotFound(groupResource(k.resource), k.name) }

// CertificateRequests returns copies of all PodCertificateRequests.
func (s *Server) CertificateRequests() (list []*certificatesv1.PodCertificateRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.objects {
		if r, ok := o.(*certificatesv1.PodCertificateRequest); ok {
			list = append(list, r.DeepCopy())
		}
	}
	return list
}
