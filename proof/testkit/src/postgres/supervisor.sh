# Runs the processes of one private server, and cleans up after them whatever happens to their owner.
#
# Orders come in line by line, each is answered with one line. When there are no more, because the owner closed the
# pipe or died, every process is ended and the folder removed. It runs in a process group of its own, so that a
# Ctrl-C meant for the tests does not end it. A process belongs to the server if its working directory is the data
# folder: that also finds those whose parent was killed.
#
# Arguments: the signal that ends the server at once, then where the folder may be made; the first place that works
# is taken.
set -u
trap '' HUP INT TERM PIPE
umask 077
cd /

goodbye=$1
shift
folder=
for place in "$@"; do
    folder=$(mktemp -d "$place/semel-server-XXXXXX" 2>/dev/null) && break
done
if [ -z "$folder" ]; then
    echo "failed: no folder can be made in $*"
    exit 1
fi
# As the system calls it, since that is how working directories are shown.
folder=$(cd "$folder" && pwd -P)
data=$folder/data
log=$folder/log
# ext4 then puts the data folder anywhere on the disk, not beside everybody else's temporary files. See `initialize`.
chattr +T "$folder" 2>/dev/null
mkdir "$data"
server=
echo "folder $folder"

processes() {
    for directory in /proc/[0-9]*/cwd; do
        if [ "$directory" -ef "$data" ]; then
            process=${directory#/proc/}
            echo "${process%/cwd}"
        fi
    done
}

# Whether all are gone after at most so many hundredths of a second.
gone_within() {
    left=$1
    while [ -n "$(processes)" ]; do
        [ "$left" -gt 0 ] || return 1
        left=$((left - 1))
        sleep 0.01
    done
}

forget() {
    [ -z "$server" ] || wait "$server" 2>/dev/null
    server=
}

# All at once, without a chance to say goodbye.
destroy() {
    tries=0
    while [ "$tries" -lt 200 ]; do
        victims="$server $(processes)"
        [ "$victims" = " " ] || kill -KILL $victims 2>/dev/null
        forget
        gone_within 5 && return 0
        tries=$((tries + 1))
    done
    return 1
}

while read -r order words; do
    eval "set -- $words"
    case $order in
        write)
            name=$1
            shift
            printf '%s\n' "$@" >"$folder/$name"
            echo written
            ;;
        do)
            (cd "$data" && exec "$@") >>"$log" 2>&1 </dev/null
            echo "done $?"
            ;;
        start)
            (cd "$data" && exec "$@") >>"$log" 2>&1 </dev/null &
            server=$!
            echo "started $server"
            ;;
        wait)
            if gone_within "$1"; then
                forget
                echo gone
            else
                echo "failed: still running"
            fi
            ;;
        kill)
            if destroy; then echo gone; else echo "failed: still running"; fi
            ;;
        *) echo "failed: no such order" ;;
    esac
done

# A server that knows its signal gives shared memory back to the system, which a kill does not.
if [ -n "$server" ]; then
    running=$(processes)
    [ -z "$running" ] || kill -CONT $running 2>/dev/null
    kill -s "$goodbye" "$server" 2>/dev/null
    gone_within 500
fi
destroy
# What a killed server left: the id of its shared memory is the second word of the seventh line.
if [ -f "$data/postmaster.pid" ]; then
    set -- $(sed -n 7p "$data/postmaster.pid")
    [ -z "${2-}" ] || ipcrm -m "$2" 2>/dev/null
fi
rm -rf "$folder"
