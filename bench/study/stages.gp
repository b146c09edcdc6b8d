# The picture of stages.sh: gnuplot -e "results='DIR'" stages.gp reads DIR/study-stages.tsv, writes DIR/study-stages.svg.
set datafile separator "\t"
set border 3 lc rgb "#555555"
set tics nomirror
set grid lc rgb "#dddddd"
colour(i) = word("#332288 #44aa99 #cc6677", i) # as bench/plots.gp
shape(i) = int(word("6 4 8", i)) # hollow: none hides another
steps = results."/study-stages.tsv"
models = "gpt gated moe"
sets = "lossless moments weights"
rows(model, set) = "< awk -F'\\t' '$1 == \"model\" || ($1 == \"".model."\" && $2 == \"".set."\")' ".steps
set label 1 system("sed -n '2s/^# //p' ".steps) at screen 0.5, 0.012 center font ",9" tc rgb "#777777" noenhanced
set terminal svg size 1200,900 font "sans,12" background "white"
set output results."/study-stages.svg"
set multiplot layout 3,3 title "what the engine chooses over a training run: bytes, time, choice\n" margins 0.06,0.94,0.13,0.92 spacing 0.07,0.07
set xlabel ""
set ylabel "bytes a step, of raw"
set yrange [0:1]
set key at screen 0.5, 0.05 center vertical maxrows 1
do for [m in models] {
    set title m
    plot for [i = 1:3] rows(m, word(sets, i)) using "step":"of_raw" with linespoints pt shape(i) ps 0.5 lc rgb colour(i) title word(sets, i)
    unset key
    unset ylabel
    unset label 1
}
unset title
set ylabel "processor time, of memcpy"
set logscale y
set yrange [1:200]
do for [m in models] {
    plot for [i = 1:3] rows(m, word(sets, i)) using "step":(column("ms") / column("memcpy_ms")) with linespoints pt shape(i) ps 0.5 lc rgb colour(i) notitle
    unset ylabel
}
unset logscale y
set xlabel "step"
set ylabel "pieces that are deltas, per cent"
set yrange [0:100]
set y2range [0:75]
set ytics nomirror
set key at screen 0.5, 0.03 center vertical maxrows 1
do for [m in models] {
    if (m eq "moe") { set y2label "cells of first moments"; set y2tics }
    plot for [i = 1:3:2] rows(m, word(sets, i)) using "step":"deltas" with linespoints pt shape(i) ps 0.5 lc rgb colour(i) notitle, \
        rows(m, "moments") using "step":"cells" axes x1y2 with lines lw 2 dt 2 lc rgb colour(2) title "cells of first moments (right)"
    unset key
    unset ylabel
}
unset multiplot
