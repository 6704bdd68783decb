# frozen_string_literal: true

require "booting"

# The places of features, and the names by which programs request them.
class FilesTest < Minitest::Test
  include Booting

  TELL = "puts $LOADED_FEATURES, $LOAD_PATH\n"
  WHERE = "puts \"\#{__FILE__} \#{__dir__} \#{__method__.inspect}\"\n"

  def test_every_way_to_edit_the_load_path
    files = %w[one two three four].to_h { |name| ["#{name}/same.rb", "puts __FILE__\n"] }
    files["main.rb"] = <<~RUBY
      again = -> { $LOADED_FEATURES.reject! { |path| path.end_with?("/same.rb") }; require "same" }
      $LOAD_PATH.unshift("\#{__dir__}/one") && again.()
      $:.concat(["\#{__dir__}/two"]) && again.()
      $LOAD_PATH[0] = "\#{__dir__}/three"
      again.()
      $LOAD_PATH.first.sub!("three", "four") rescue p $!.class
      again.()
      $LOAD_PATH.map! { |path| path.sub("three", "two") } && again.()
      $LOAD_PATH.insert(1, "\#{__dir__}/one").rotate! && again.()
      $LOAD_PATH.replace(["one", "\#{__dir__}/four"].concat($LOAD_PATH)) && again.()
      Dir.chdir("two") { $LOAD_PATH[0] = "../three"; again.() }
      path = Object.new.tap { |object| object.define_singleton_method(:to_path) { "four" } }
      $LOAD_PATH.unshift(path) && again.()
      ENV["HOME"] = "\#{__dir__}/one"
      $LOAD_PATH.unshift("~") && again.()
      $LOAD_PATH.clear
      begin; again.(); rescue LoadError => e; p e.message, e.path; end
      puts $LOADED_FEATURES
    RUBY
    program(files) { |program| assert_equal 10, assert_same(program).out.scan("same.rb").size }
  end

  def test_the_loaded_features_are_rubys_own
    assert_same_program(<<~RUBY, "a.rb" => "puts :a\n", "b.rb" => "puts :b\n")
      require "a"
      $LOADED_FEATURES.delete("\#{__dir__}/lib/a.rb")
      p require("a"), require("a")
      $LOADED_FEATURES << "b.rb"
      p require("b"), require("b.rb"), require("\#{__dir__}/lib/b")
      $".unshift($".pop)
      p require("\#{__dir__}/lib/b.rb")
      #{TELL}
    RUBY
  end

  def test_all_spellings_of_a_name
    names = %w[a a.rb ./lib/a lib/../lib/a ./lib//a sub/../a sub/./b sub//b b.c b.c.rb a.so a.o
               e.rb.rb .hidden ~/nowhere]
    libraries = %w[a.rb sub/b.rb b.c.rb e.rb.rb .hidden.rb a.so.rb].to_h { |name| [name, WHERE] }
    assert_same_program(<<~RUBY, **libraries)
      #{names}.each do |name|
        p [name, require(name)]
      rescue LoadError => e
        p e.message, e.path, e.backtrace
      end
      [nil, 7, :a, "", "a\\0b", "a" * 5000].each { |name| require(name) rescue p $! }
      begin; require "a" * 5000; rescue LoadError, SystemCallError => e; p e.class; end
      #{TELL}
    RUBY
  end

  def test_names_beyond_ascii
    names = ["ä", "日本", "\xff\xfe"]
    files = names.to_h { |name| ["lib/#{name}.rb".b, WHERE] }
    files["lib/ü/in.rb"] = WHERE
    files["main.rb"] = <<~RUBY
      names = #{names.map { |name| name.b.unpack1("H*") }}.map { |hex| [hex].pack("H*") }
      names.each do |name|
        p require(name), require(name.dup.force_encoding("UTF-8"))
      rescue StandardError, LoadError => e
        p e.class, e.message
      end
      $LOAD_PATH.unshift("\#{__dir__}/lib/ü")
      p require("in")
      puts $LOADED_FEATURES.map(&:b)
    RUBY
    program(files) { |program| assert_same(program) }
  end

  def test_linked_folders_and_files
    files = { "real/lib/gem.rb" => "require_relative \"gem/part\"\n#{WHERE}",
              "real/lib/gem/part.rb" => WHERE }
    files["main.rb"] = <<~RUBY
      $LOAD_PATH.unshift("\#{__dir__}/link/lib")
      p require("gem"), require("\#{__dir__}/real/lib/gem"), require("\#{__dir__}/link/lib/gem.rb")
      p require("file"), require_relative("lib/file")
      load "\#{__dir__}/link/lib/gem/part.rb"
      p begin; require("dangling"); rescue LoadError; $!.message; end
      p begin; require("around"); rescue LoadError, SystemCallError; $!.message; end
      #{TELL}
    RUBY
    program(files) do |program|
      File.symlink("real", "#{program.folder}/link")
      File.symlink("../real/lib/gem/part.rb", "#{program.folder}/lib/file.rb")
      File.symlink("nothing", "#{program.folder}/lib/dangling.rb")
      File.symlink("around.rb", "#{program.folder}/lib/around.rb")
      program.age
      assert_same(program)
      # The link leads elsewhere: everything is found there.
      FileUtils.cp_r("#{program.folder}/real", "#{program.folder}/other")
      program.write("other/lib/gem.rb", "puts :other\n")
      File.unlink("#{program.folder}/link")
      File.symlink("other", "#{program.folder}/link")
      program.age
      [[], [], ["--digest"], ["--frozen"]].each do |options|
        assert_said program.plain, program.run(*options), options.join
      end
    end
  end

  # Statements that make Ruby expand its load path before it searches the load path for a name.
  EXPANDS = {
    "an absolute name" => "require \"\#{__dir__}/lib/first\"",
    "an absolute name with a suffix" => "require \"\#{__dir__}/lib/first.rb\"",
    "a relative name" => "require_relative 'lib/first'",
    "a loaded file" => "load \"\#{__dir__}/lib/first.rb\"",
    "an autoload" => "autoload :FIRST, \"\#{__dir__}/lib/first\"\nFIRST"
  }.freeze

  # Ruby keeps the real paths of its load path until the load path changes.
  EXPANDS.each do |name, first|
    define_method("test_a_link_in_the_load_path_counts_as_when_ruby_met_it_#{name.tr(" ", "_")}") do
      files = { "lib/first.rb" => "FIRST = 1\n", "one/g.rb" => "", "two/g.rb" => "" }
      files["main.rb"] = <<~RUBY
        def lead(to)
          File.unlink("link") if File.symlink?("link")
          File.symlink(to, "link")
        end
        lead("one")
        $LOAD_PATH.unshift("\#{__dir__}/link")
        #{first}
        lead("two")
        require "g"
        puts $LOADED_FEATURES.grep(/\\/g\\.rb/)
      RUBY
      program(files) { |program| assert_same(program, switches: ["--disable=gems"]) }
    end
  end

  MAKES = <<~RUBY
    begin; require "made"; rescue LoadError => e; puts e.message; end
    File.write("lib/made.rb", "puts :made\n")
    p require("made"), File.unlink("lib/made.rb")
    Dir.mkdir("lib/new")
    File.write("lib/new/first.rb", "puts :first\n")
    p require("new/first"), require("there")
    File.rename("lib/new/first.rb", "lib/new/second.rb")
    p require("new/second"), begin; require("new/third"); rescue LoadError; $!.message; end
    File.unlink("lib/new/second.rb")
    Dir.rmdir("lib/new")
    #{TELL}
  RUBY

  def test_what_a_program_makes_is_found_however_frozen_the_pack_is
    program("main.rb" => "require 'there'", "lib/there.rb" => "puts :there\n") do |program|
      program.run
      program.write("main.rb", MAKES)
      [["--trust-image"], ["--frozen"], ["--digest"], [], []].each do |options|
        assert_said program.plain, program.run(*options), options.join
      end
    end
  end

  # Each time everything is put back, so that the pack's stamps are those of other files.
  UNDOES = <<~'RUBY'
    require "fileutils"
    require "yaml"
    say = lambda do |name|
      p [name, require(name)]
    rescue LoadError => e
      p e.message
    end
    again = ->(name) { $LOADED_FEATURES.reject! { |path| path.end_with?("/#{name}.rb") }; say.(name) }
    say.("other/part")
    say.("there")
    File.rename("lib/there.rb", "lib/../lib/away.rb")
    again.("there")
    say.("away")
    begin; load("#{__dir__}/lib/there.rb"); rescue LoadError => e; p e.class; end
    File.rename("lib//away.rb", "#{__dir__}/sub/../lib/there.rb")
    File.write("lib/new.rb", "puts :new\n")
    FileUtils.mv("lib/new.rb", "lib/there.rb")
    again.("there")
    Dir.mkdir("lib/made/")
    FileUtils.mv("lib/other", "lib/made/")
    again.("other/part")
    say.("made/other/part")
    FileUtils.cp_r("lib/made/other", "lib")
    File.write("lib/other/part.rb", "puts :written\n")
    again.("other/part")
    FileUtils.rm_r("lib/made")
    again.("made/other/part")
    p YAML.load_file("text.yml")
    File.write("text.yml", "{b: 2}\n")
    p YAML.load_file("text.yml")
    File.write("text.yml", "{a: 1}\n")
    File.write("lib/there.rb", "puts :there\n")
    File.write("lib/other/part.rb", "puts :part\n")
  RUBY

  def test_what_a_program_does_to_its_own_files_is_seen_however_frozen_the_pack_is
    files = { "lib/there.rb" => "puts :there\n",
              "lib/other/part.rb" => "puts :part\n", "sub/x" => "", "text.yml" => "{a: 1}\n" }
    program({ **files, "main.rb" => LEARNS }) do |program|
      2.times { program.run }
      # On a slow machine, files that the program writes may be old enough to be learned.
      pack = File.binread(program.pack)
      program.write("main.rb", UNDOES)
      [[], [], ["--trust-image"], ["--frozen"], ["--digest"], []].each do |options|
        File.unlink(program.pack)
        File.binwrite(program.pack, pack)
        assert_said program.plain, program.run(*options), options.join
        program.age
      end
    end
  end

  LEARNS = "require 'yaml'\nrequire 'there'\nrequire 'other/part'\nYAML.load_file('text.yml')\n"

  def test_a_frozen_pack_minds_the_folders_that_features_are_looked_for_in
    skip_if_portable "freezes nothing"
    main = "load \"\#{__dir__}/parts/deep/part.rb\"\nrequire 'there'\n"
    program("main.rb" => main, "parts/deep/part.rb" => "", "lib/there.rb" => "") do |program|
      2.times { program.run }
      program.write("news.txt", "")
      refute_match(/not frozen/, program.run("--frozen", "--explain").err)
      program.write("lib/there.so", "")
      told = "thruway: not frozen, since #{program.folder}/lib has changed\n"
      assert program.run("--frozen", "--explain").err.start_with?(told)
    end
  end

  def test_what_a_child_makes_is_found
    program("main.rb" => <<~RUBY, "lib/there.rb" => "") do |program|
      begin; require "made"; rescue LoadError => e; puts e.message; end
      system("echo 'puts :made' > lib/made.rb")
      p require("there"), require("made")
      `rm lib/made.rb`
      $LOADED_FEATURES.pop
      begin; require "made"; rescue LoadError => e; puts e.message; end
    RUBY
      plain = program.plain
      [[], [], ["--digest"]].each { |options|
        assert_said plain, program.run(*options), options.join
      }
    end
  end

  def test_unreadable_and_odd_files
    files = { "lib/folder.rb/x" => "", "lib/late/folder.rb" => WHERE, "main.rb" => <<~RUBY }
      $LOAD_PATH << "\#{__dir__}/lib/late"
      p require("folder")
      begin; require "pipe"; rescue LoadError, SystemCallError => e; p e.class, e.message; end
      begin; load __dir__; rescue LoadError, SystemCallError => e; p e.class, e.message; end
      begin; load "nothing"; rescue LoadError => e; p e.message, e.path; end
      #{TELL}
    RUBY
    program(files) do |program|
      assert system("mkfifo", "#{program.folder}/lib/notpipe.rb")
      assert_same(program)
    end
  end
end
