// the copy of the compiled sources, which recognize its errors by their classes
export default requireCompiled('mongoose');
