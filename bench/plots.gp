# Drawn by plots.py, which sets: plot, table (one block for each of `count` series, its title first), output, heading,
# origin; for codecs ours (the first so many series are bitsnap's), their names, least_0, the smallest ratio, and least_1 and least_2, the slowest; for kernels lines,
# for threads processors.
set output output
set border 3 lc rgb "#555555"
set tics nomirror
set grid lc rgb "#dddddd"
set label 1 origin at screen 0.5, 0.015 center font ",9" tc rgb "#777777" noenhanced
# Colours that who sees fewer tells apart, too (P. Tol, "muted"), and a marker for each series, hollow but for
# the tenth: none hides another.
colour(i) = word("#332288 #44aa99 #cc6677 #117733 #88ccee #aa4499 #999933 #882255 #ddcc77 #777777", i % 10 + 1)
shape(i) = int(word("6 4 8 12 10 14 1 2 3 5", i % 10 + 1))

if (plot eq "codecs") {
    other(i) = int(word("4 10 14 1 2 3 5 11 15 7", i % 10 + 1)) # triangle, circle and diamond are our levels
    levels = "fast default best"
    level_shape(i) = int(word("8 6 12", i))
    set terminal svg size 1100,520 font "sans,12" background "white"
    set multiplot layout 1,2 title heading."\n" noenhanced margins 0.08,0.98,0.33,0.90 spacing 0.07
    set logscale x
    set ylabel "ratio"
    set yrange [least_0 - 0.03:*]
    set arrow 1 from 1, graph 0 to 1, graph 1 nohead dt 2 lc rgb "#555555"
    set label 2 "memcpy" at 1, graph 0.03 right offset -0.5,0 font ",10"
    do for [panel = 1:2] {
        if (panel == 1) { set key at screen 0.5, 0.14 center vertical maxrows 4 noenhanced font ",10" samplen 1 } else { unset key }
        set xlabel panel == 1 ? "compress: share of memcpy's speed" : "decompress: share of memcpy's speed"
        set xrange [0.7 * (panel == 1 ? least_1 : least_2):1.5]
        if (panel == 2) { unset label 1 } # drawn once
        plot for [i = 0:ours - 1] table index i using (column(panel + 1)):1 with lines lc rgb colour(i) notitle, \
             for [i = 0:ours - 1] table index i every ::1 using (column(panel + 1)):1:4 with points pt variable ps 1.1 lw 1.5 lc rgb colour(i) notitle, \
             for [k = 1:3] for [i = 0:ours - 1] keyentry with points pt level_shape(k) ps 1.1 lw 1.5 lc rgb colour(i) title "bitsnap ".word(names, i + 1).", ".word(levels, k), \
             for [i = ours:count - 1] table index i using (column(panel + 1)):1 with points pt other(i - ours) ps 1.0 lw 1.5 lc rgb colour(i) title columnheader(1)
    }
    unset multiplot
}

if (plot eq "sizes") {
    set terminal svg size 1100,520 font "sans,12" background "white"
    set multiplot layout 1,2 title heading."\n" noenhanced margins 0.09,0.98,0.27,0.90 spacing 0.08
    set logscale x 4
    set xtics ("1 KiB" 1024, "16 KiB" 16384, "256 KiB" 262144, "4 MiB" 4194304, "64 MiB" 67108864, "1 GiB" 1073741824)
    set logscale y
    set format y "%g"
    set xlabel "bytes of the tensor"
    set ylabel "microseconds"
    set key at screen 0.5, 0.10 center vertical maxrows 3 font ",10"
    plot table index count - 1 using 1:2 with linespoints pt 2 ps 0.5 lc rgb "#555555" title "memcpy", \
         for [i = 0:count - 1] table index i using 1:3 with linespoints pt shape(i) ps 0.5 lc rgb colour(i) title columnheader(1)." compress", \
         for [i = 0:count - 1] table index i using 1:4 with linespoints pt shape(i) ps 0.5 dt 2 lc rgb colour(i) title columnheader(1)." decompress"
    set ylabel "GB/s"
    unset key
    unset label 1
    plot table index count - 1 using 1:($1 / $2 / 1e3) with linespoints pt 2 ps 0.5 lc rgb "#555555" notitle, \
         for [i = 0:count - 1] table index i using 1:($1 / $3 / 1e3) with linespoints pt shape(i) ps 0.5 lc rgb colour(i) notitle, \
         for [i = 0:count - 1] table index i using 1:($1 / $4 / 1e3) with linespoints pt shape(i) ps 0.5 dt 2 lc rgb colour(i) notitle
    unset multiplot
}

if (plot eq "threads") {
    set terminal svg size 620,460 font "sans,12" background "white"
    set title heading noenhanced
    set bmargin 6
    set xlabel "threads"
    set ylabel "GB/s"
    set xrange [0.8:processors + 0.2]
    set xtics 1
    if (processors > 16) { set xtics autofreq }
    set yrange [0:*]
    set key outside right top font ",10"
    plot table index count - 1 using 1:2 with linespoints pt 2 lc rgb "#555555" title "memcpy", \
         for [i = 0:count - 1] table index i using 1:3 with linespoints pt shape(i) ps 0.6 lc rgb colour(i) title columnheader(1)." compress", \
         for [i = 0:count - 1] table index i using 1:4 with linespoints pt shape(i) ps 0.6 dt 2 lc rgb colour(i) title columnheader(1)." decompress"
}

if (plot eq "kernels") {
    set terminal svg size 900,(140 + 18 * lines) font "sans,12" background "white"
    set title heading noenhanced
    set bmargin 6
    set logscale x
    set xlabel "share of memcpy's speed"
    set yrange [-lines + 0.5:0.5]
    set key outside right top
    plot for [i = 0:count - 1] table index i using 2:1:ytic(3) with points pt shape(i) ps 0.8 lw 1.5 lc rgb colour(i) title columnheader(1)
}
