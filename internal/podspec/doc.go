// Package podspec lists parts of a pod's spec: its containers, its images and the objects that it
// refers to. It also reads the conditions and the containers of a pod's status.
package podspec
