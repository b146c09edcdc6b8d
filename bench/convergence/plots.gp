# Pictures of convergence.py: gnuplot -e "results='DIR'" plots.gp reads DIR/convergence*.tsv, writes .svg there.
set datafile separator "\t"
set datafile missing "-"
set border 3 lc rgb "#555555"
set tics nomirror
set grid lc rgb "#dddddd"
colour(i) = word("#000000 #332288 #44aa99 #cc6677 #117733 #88ccee #aa4499 #999933 #882255 #777777", i) # as bench/plots.gp
shape(i) = int(word("1 6 4 8 12 10 14 2 3 5", i)) # hollow but for two: none hides another
table = results."/convergence.tsv"
curves = results."/convergence-curves.tsv"
set label 1 system("sed -n '2s/^# //p' ".table) at screen 0.5, 0.015 center font ",9" tc rgb "#777777" noenhanced
names = system("awk -F'\\t' '!/^#/ && $1 != \"form\" && !seen[$1]++ { printf \"\\\"%s\\\" \", $1 }' ".table)
most = int(system("awk -F'\\t' '$2 + 0 > most { most = $2 + 0 } END { print most }' ".table))
columns = int(system("awk -F'\\t' '!/^#/ { print NF; exit }' ".curves))
forms = words(names)
# the spread of other orders: differences are given in loss and in spreads
spread = real(system("awk -F'\\t' '!/^#/ && $12 + 0 { print $11 / $12; exit }' ".table))
rows(i) = "< awk -F'\\t' '$1 == \"form\" || $1 == \"".word(names, i)."\"' ".table

# The runs with most restores. Columns of the curves: step, undisturbed, the forms, other orders.
stats curves using 2 skip 1 nooutput
set terminal svg size 1200,560 font "sans,12" background "white"
set output results."/convergence-loss.svg"
set multiplot layout 1,2 title sprintf("training on with moments stored and restored %d times\n", most) margins 0.07,0.98,0.29,0.88 spacing 0.09
set xlabel "step"
top = STATS_max + 0.3 * (STATS_max - STATS_min)
set title sprintf("loss of the batches, mean of 10 steps; cut at %.1f", top)
set yrange [STATS_min - 0.1 * (STATS_max - STATS_min):top]
set key at screen 0.5, 0.12 center vertical maxrows 4 noenhanced samplen 2
plot for [i = forms + 3:columns] curves using 1:i with lines lc rgb "#cccccc" title i == columns ? "other orders of the text" : "", \
    for [i = forms + 2:3:-1] curves using 1:i with lines lc rgb colour(i - 2) title columnheader(i), \
    curves using 1:2 with lines lw 2 lc rgb "black" dt 3 title "undisturbed"
unset key
unset label 1
set title "difference to the undisturbed run"
set logscale y
set format y "%.0e"
set yrange [1e-7:*]
plot for [i = forms + 2:3:-1] curves using 1:(abs(column(i) - column(2))) with lines lc rgb colour(i - 2) notitle
unset multiplot

set output results."/convergence-restores.svg"
set label 1 system("sed -n '2s/^# //p' ".table) at screen 0.5, 0.015 center font ",9" tc rgb "#777777" noenhanced
set multiplot layout 1,2 title "moments stored and restored: the end of the run\n" margins 0.07,0.98,0.29,0.88 spacing 0.09
set logscale x
set xlabel "restores"
set xrange [0.9:most * 1.1]
set xtics (1, 2, 5, 10, 20)
set key at screen 0.5, 0.12 center vertical maxrows 4 noenhanced samplen 2
set title "loss on unseen text: difference to the undisturbed run"
set yrange [1e-6:1000]
set label 2 "spread of other orders of the text" at 1, spread offset 0,0.7 font ",10"
plot for [i = 2:forms] rows(i) using "restores":(abs(column("loss_difference"))) with linespoints pt shape(i) ps 0.7 lc rgb colour(i) title word(names, i), \
    spread with lines lc rgb "black" dt 2 notitle
unset key
unset label 1
unset label 2
set title "weights: distance from the undisturbed run, in parts of its way (dashed: 1 %)"
set yrange [1e-4:3000]
set format y "%g"
plot for [i = 2:forms] rows(i) using "restores":"distance" with linespoints pt shape(i) ps 0.7 lc rgb colour(i) notitle, \
    0.01 with lines lc rgb "black" dt 2 notitle
unset multiplot
