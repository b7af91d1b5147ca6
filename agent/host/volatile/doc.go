// Package volatile lets the agent start on a read-only disk (EROFS), for example on a card that the kernel has
// remounted read-only. It mounts an overlay in memory over each agent directory on such a disk. The directories keep
// their paths, so the rest of the agent is not affected.
//
//	RUN/volatile            a tmpfs, bounded
//	  <dir>/disk            the directory as the disk has it
//	  <dir>/upper, work     of the overlay that is mounted over the directory
//	  <dir>/apart/<n>       of the tmpfs, mounted over directories in the overlay
//
// The directories below <dir>/apart contain the upper directories and layers of other overlays, such as those of
// containers. Such directories cannot be inside an overlay. The reason is that an overlay cannot contain the upper
// directory of another overlay, and that an overlay hides whiteouts. So the small files in these directories are copied
// to the tmpfs, and their subdirectories at the second level are replaced by symbolic links to the disk. A disk that does
// not return one of these files does not prevent this.
//
// A pod can fill the layer, but it cannot exhaust the machine's memory. Writes to a full layer fail like writes to a full
// disk. A pod's writes are charged to the pod's memory. All changes are lost at the next boot. The directories are then
// as they were when the disk became read-only. When a file is changed, the whole file is copied into memory. The layer
// stays until the machine reboots or UnmountLayers is called, even if the disk becomes writable again. Without the layer
// the agent would see the data on the disk, which is older than the agent's state.
package volatile
